//! What is printed: every round, then the medians and how they stand to the aim.

/// Two things measured in turn.
pub struct Comparison {
    pub unit: &'static str,
    pub ours: &'static str,
    pub theirs: &'static str,
    rounds: Vec<(f64, f64)>,
}

impl Comparison {
    pub fn new(unit: &'static str, ours: &'static str, theirs: &'static str) -> Self {
        Comparison { unit, ours, theirs, rounds: Vec::new() }
    }

    pub fn add(&mut self, ours: f64, theirs: f64) {
        println!("  {} {ours:.0}  {} {theirs:.0}  ratio {:.2}", self.ours, self.theirs, ours / theirs);
        self.rounds.push((ours, theirs));
    }

    /// Ours should be the larger.
    pub fn finish(&self, aim: f64) {
        self.tell(&format!("aim at least {aim}"), |ratio| ratio >= aim);
    }

    /// Ours should be the smaller, or not much larger.
    pub fn finish_at_most(&self, aim: f64) {
        self.tell(&format!("aim at most {aim}"), |ratio| ratio <= aim);
    }

    /// The ratio is the median of the rounds' ratios, so that a disturbed round counts as one and not by its size.
    fn tell(&self, aim: &str, is_met: impl Fn(f64) -> bool) {
        let of = |pick: fn(&(f64, f64)) -> f64| median(self.rounds.iter().map(pick).collect());
        let ratio = of(|(ours, theirs)| ours / theirs);
        println!(
            "{} {:.0} {}, {} {:.0}: ratio {ratio:.2}, {aim} ({}; median of {} rounds)",
            self.ours,
            of(|(ours, _)| *ours),
            self.unit,
            self.theirs,
            of(|(_, theirs)| *theirs),
            if is_met(ratio) { "met" } else { "MISSED" },
            self.rounds.len(),
        );
    }
}

/// A figure beside its limit.
pub fn limit(name: &str, figures: Vec<f64>, unit: &str, limit: f64) {
    let count = figures.len();
    let figure = median(figures);
    let verdict = if figure < limit { "met" } else { "MISSED" };
    println!(
        "{name} {figure:.1} {unit}, limit {limit} {unit}: {:.2} of it ({verdict}; median of {count})",
        figure / limit
    );
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[middle],
        _ => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}

/// The figure that so many thousandths of all figures do not exceed.
pub fn percentile(mut figures: Vec<f64>, thousandths: usize) -> f64 {
    figures.sort_by(f64::total_cmp);
    let place = (figures.len() * thousandths).div_ceil(1_000);
    figures.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
