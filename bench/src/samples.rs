//! What was measured, and its middle.

use std::collections::BTreeMap;

use crate::{measure::Measure, variant::Variant};

/// All values of all rounds.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<(Variant, Measure), Vec<f64>>);

impl Samples {
    pub(crate) fn add(&mut self, variant: Variant, measure: Measure, value: f64) {
        self.0.entry((variant, measure)).or_default().push(value);
    }

    /// The middle value, if there is one.
    pub(crate) fn median(&self, variant: Variant, measure: Measure) -> Option<f64> {
        let sorted = self.sorted(variant, measure);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        if sorted.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(sorted[middle - 1], upper)) }
    }

    /// The smallest and the largest value.
    pub(crate) fn range(&self, variant: Variant, measure: Measure) -> Option<(f64, f64)> {
        let sorted = self.sorted(variant, measure);
        Some((*sorted.first()?, *sorted.last()?))
    }

    /// `a` of one driver, as a multiple of `b` of another.
    pub(crate) fn ratio(&self, a: (Variant, Measure), b: (Variant, Measure)) -> Option<f64> {
        let below = self.median(b.0, b.1)?;
        (below > 0.0).then_some(self.median(a.0, a.1)? / below)
    }

    fn sorted(&self, variant: Variant, measure: Measure) -> Vec<f64> {
        let mut values = self.0.get(&(variant, measure)).cloned().unwrap_or_default();
        values.sort_by(f64::total_cmp);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: Measure = Measure::Binary;

    fn of(values: &[f64]) -> Samples {
        let mut samples = Samples::default();
        for value in values {
            samples.add(Variant::Ours, BINARY, *value);
        }
        samples
    }

    #[test]
    fn the_median_is_the_middle_value_whatever_the_order() {
        for (values, median) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[3.0, 1.0], Some(2.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
            (&[4.0, 1.0, 9.0, 2.0], Some(3.0)),
        ] {
            assert_eq!(of(values).median(Variant::Ours, BINARY), median, "{values:?}");
        }
    }

    #[test]
    fn the_range_has_the_outliers() {
        assert_eq!(of(&[2.0, 9.0, 1.0]).range(Variant::Ours, BINARY), Some((1.0, 9.0)));
        assert_eq!(of(&[]).range(Variant::Ours, BINARY), None);
    }

    #[test]
    fn a_ratio_needs_both_sides_and_no_zero_below() {
        let mut samples = of(&[3.0]);
        let ours = (Variant::Ours, BINARY);
        let go = (Variant::GoFair, BINARY);
        assert_eq!(samples.ratio(ours, go), None);
        samples.add(Variant::GoFair, BINARY, 0.0);
        assert_eq!(samples.ratio(ours, go), None);
        samples.add(Variant::GoFair, BINARY, 4.0);
        assert_eq!(samples.ratio(ours, go), Some(1.5));
    }
}
