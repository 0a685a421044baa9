//! Every kind of event there is: what can be subscribed to, the catalogue route and the document's `webhooks` section all come
//! from here.

use kernel::auth::Scopes;
use kernel::base::{Error, Result};
use kernel::events::{EventKindDescription, family_of};

use crate::custom_event::is_custom_kind;
use crate::feature::{EventFamily, Registry};
use crate::subscription::{EVERYTHING, matching_patterns};

impl Registry {
    /// The kinds, by family. They are described on first use.
    pub fn event_kinds(&self) -> Result<&[EventKindDescription]> {
        if let Some(kinds) = self.event_kinds.get() {
            return Ok(kinds);
        }
        let declared = self.features.iter().flat_map(|feature| feature.event_kinds);
        let mut kinds = declared.map(|describe| describe()).collect::<Result<Vec<_>>>()?;
        let rank = |kind: &EventKindDescription| self.family_order.iter().position(|name| *name == kind.family());
        kinds.sort_by_key(|kind| rank(kind).unwrap_or(usize::MAX));
        Ok(self.event_kinds.get_or_init(|| kinds))
    }

    /// Whether an endpoint can subscribe to this: a kind, one that a tenant names itself, `<family>.*` of a family that has
    /// kinds, or `*`.
    pub fn can_subscribe(&self, pattern: &str) -> Result<bool> {
        let kinds = self.event_kinds()?;
        Ok(match pattern.strip_suffix(".*") {
            Some(family) => kinds.iter().any(|kind| kind.family() == family),
            None => pattern == EVERYTHING || is_custom_kind(pattern) || kinds.iter().any(|kind| kind.name == pattern),
        })
    }

    /// The kinds that any of these patterns matches; those that tenants name themselves are `custom.*`, or as they are named.
    pub fn matching_kinds(&self, patterns: &[String]) -> Result<Vec<String>> {
        let matches = |name: &str| matching_patterns(name).iter().any(|pattern| patterns.contains(pattern));
        let declared = self.event_kinds()?.iter().map(|kind| kind.name).filter(|name| matches(name)).map(str::to_owned);
        Ok(declared.chain(patterns.iter().filter(|pattern| is_custom_kind(pattern)).cloned()).collect())
    }

    /// Every pattern that [`Registry::can_subscribe`] accepts, but those that tenants name themselves.
    pub fn event_patterns(&self) -> Result<Vec<String>> {
        let mut patterns = vec![EVERYTHING.to_owned()];
        for kind in self.event_kinds()? {
            let whole_family = format!("{}.*", kind.family());
            if !patterns.contains(&whole_family) {
                patterns.push(whole_family.clone());
            }
            if kind.name != whole_family {
                patterns.push(kind.name.to_owned());
            }
        }
        Ok(patterns)
    }

    /// The scopes that subscribing to these patterns takes.
    pub fn scopes_needed<'a>(&self, patterns: impl IntoIterator<Item = &'a str>) -> Result<Scopes> {
        let mut words = Vec::new();
        for pattern in patterns {
            let is_included = |family: &&EventFamily| pattern == EVERYTHING || family.name == family_of(pattern);
            words.extend(self.event_families.iter().filter(is_included).map(|family| family.scope.name()));
        }
        Scopes::parse(words).map_err(Error::internal)
    }

    /// The families whose events a holder of these scopes may read.
    pub fn readable_families(&self, scopes: &Scopes) -> Vec<&'static str> {
        self.event_families.iter().filter(|family| scopes.has_scope(family.scope)).map(|family| family.name).collect()
    }
}
