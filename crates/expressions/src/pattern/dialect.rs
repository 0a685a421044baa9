//! What means something else here than in RE2, and what RE2 does not have, is refused.

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    self, Ast, ClassSetBinaryOpKind, ClassSetItem, Flag, FlagsItemKind, HexLiteralKind, LiteralKind, Visitor,
};

use super::{NESTING_MAX, wrong_pattern};

pub fn check_dialect(pattern: &str) -> Result<(), String> {
    let parsed = ParserBuilder::new().nest_limit(NESTING_MAX).build().parse(pattern);
    let parsed = parsed.map_err(|error| wrong_pattern(&error.to_string()))?;
    ast::visit(&parsed, DialectCheck { pattern })
}

struct DialectCheck<'p> {
    pattern: &'p str,
}

impl DialectCheck<'_> {
    fn check_flags(flags: &ast::Flags) -> Result<(), String> {
        for item in &flags.items {
            let sign = match item.kind {
                FlagsItemKind::Flag(Flag::Unicode) => 'u',
                FlagsItemKind::Flag(Flag::IgnoreWhitespace) => 'x',
                FlagsItemKind::Flag(Flag::CRLF) => 'R',
                FlagsItemKind::Negation
                | FlagsItemKind::Flag(
                    Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed,
                ) => continue,
            };
            return Err(format!("RE2 has no flag {sign}, only i, m, s and U."));
        }
        Ok(())
    }

    /// A sign that can stand for itself at the start of a class can also start a range in RE2.
    fn check_class_start(&self, class: &ast::ClassBracketed) -> Result<(), String> {
        let source = self.pattern.get(class.span.start.offset..).unwrap_or_default();
        let source = source.trim_start_matches('[').trim_start_matches('^');
        let is_range = source.starts_with("--") || (source.starts_with("]-") && !source.starts_with("]-]"));
        if is_range {
            return Err("In RE2 [--a] and []-a] are ranges: write \\- and \\] for the signs.".to_owned());
        }
        Ok(())
    }
}

impl Visitor for DialectCheck<'_> {
    type Output = ();
    type Err = String;

    fn finish(self) -> Result<(), String> {
        Ok(())
    }

    fn visit_pre(&mut self, node: &Ast) -> Result<(), String> {
        match node {
            Ast::Flags(flags) => Self::check_flags(&flags.flags),
            Ast::Literal(literal) => check_literal(literal),
            Ast::ClassBracketed(class) => self.check_class_start(class),
            Ast::Group(group) => group.flags().map_or(Ok(()), Self::check_flags),
            Ast::Assertion(assertion) => match assertion.kind {
                ast::AssertionKind::WordBoundaryStartAngle | ast::AssertionKind::WordBoundaryEndAngle => {
                    Err("In RE2 \\< and \\> are the signs < and >, which are written without a backslash.".to_owned())
                }
                ast::AssertionKind::WordBoundaryStart
                | ast::AssertionKind::WordBoundaryEnd
                | ast::AssertionKind::WordBoundaryStartHalf
                | ast::AssertionKind::WordBoundaryEndHalf => Err("RE2 has no \\b{…}, only \\b and \\B.".to_owned()),
                _ => Ok(()),
            },
            Ast::Repetition(repetition) => {
                let span = repetition.op.span;
                let source = self.pattern.get(span.start.offset..span.end.offset).unwrap_or_default();
                if source.contains(' ') {
                    return Err("In RE2 {1, 3} is no repetition: write {1,3}.".to_owned());
                }
                if let Ast::Repetition(_) = &*repetition.ast {
                    return Err("RE2 repeats no repetition, as in a** or a*+: use brackets.".to_owned());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), String> {
        match item {
            ClassSetItem::Bracketed(_) => Err("In RE2 a [ within a class is a sign of it: write \\[.".to_owned()),
            ClassSetItem::Literal(literal) => check_literal(literal),
            ClassSetItem::Range(range) => check_literal(&range.start).and_then(|()| check_literal(&range.end)),
            _ => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, operation: &ast::ClassSetBinaryOp) -> Result<(), String> {
        let sign = match operation.kind {
            ClassSetBinaryOpKind::Intersection => "&&",
            ClassSetBinaryOpKind::Difference => "--",
            ClassSetBinaryOpKind::SymmetricDifference => "~~",
        };
        Err(format!("In RE2 {sign} within a class are two signs of it: write one of them, after a backslash."))
    }
}

fn check_literal(literal: &ast::Literal) -> Result<(), String> {
    match literal.kind {
        LiteralKind::HexFixed(HexLiteralKind::X) | LiteralKind::HexBrace(HexLiteralKind::X) => Ok(()),
        LiteralKind::HexFixed(_) | LiteralKind::HexBrace(_) => {
            Err("RE2 has no \\u: write \\x{41}, or leave the escape to the text around the pattern.".to_owned())
        }
        _ => Ok(()),
    }
}
