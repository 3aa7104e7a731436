//! The tables of figures.

use super::{head_of, table};
use crate::{
    bench::HELD,
    measure::{Measure, Phase, Shape},
    samples::Samples,
    variant::Variant,
};

const NONE: &str = "–";

/// Times of calls with one claim, and claims a second for each shape.
pub(super) fn calls(samples: &Samples) -> String {
    let variants = with_floor();
    let mut rows = Vec::new();
    for phase in Phase::ALL {
        for (what, measure) in
            [("p50", Measure::P50(phase, Shape::SINGLE)), ("p99", Measure::P99(phase, Shape::SINGLE))]
        {
            let title = format!("{phase} (1,1), {what}");
            rows.push(row(samples, title, &variants, measure, |value| format!("{value:.2} ms")));
        }
        for shape in Shape::ALL {
            let title = format!("{phase} {shape}, claims/s");
            rows.push(row(samples, title, &variants, Measure::Rate(phase, shape), whole));
        }
    }
    table(&head_of("median (smallest–largest)", &variants), rows)
}

pub(super) fn held(samples: &Samples) -> String {
    let variants = [Variant::Ours, Variant::GoFair];
    let mut rows = Vec::new();
    for phase in [Phase::Prepare, Phase::Unprepare] {
        for count in HELD {
            let title = format!("{phase} (1,1), p50 with {count} held");
            let measure = Measure::Held(phase, count);
            rows.push(row(samples, title, &variants, measure, |value| format!("{value:.2} ms")));
        }
    }
    table(&head_of("", &variants), rows)
}

pub(super) fn starts(samples: &Samples) -> String {
    let variants = with_floor();
    let rows = [
        ("process started → registered", Measure::Registered),
        ("process started → slices visible", Measure::Visible),
        ("registered → slices visible", Measure::VisibleAfterRegistration),
        ("slices deleted by a kubelet that starts → back", Measure::BackAfterRestart),
        ("first batch of ten after two minutes of silence", Measure::FirstBatch),
    ]
    .map(|(title, measure)| {
        row(samples, title.to_owned(), &variants, measure, |value| format!("{value:.0} ms"))
    });
    table(&head_of("", &variants), rows)
}

pub(super) fn sizes(samples: &Samples) -> String {
    let variants = Variant::DRIVERS;
    let megabytes = |value: f64| format!("{:.1} MB", value / 1e6);
    let mut rows: Vec<_> = [
        ("memory (RSS) at start", Measure::MemoryAtStart),
        ("memory after 100 claims", Measure::MemoryAfter),
        ("program", Measure::Binary),
    ]
    .into_iter()
    .map(|(title, measure)| row(samples, title.to_owned(), &variants, measure, megabytes))
    .collect();
    for (title, measure) in
        [("threads at start", Measure::ThreadsAtStart), ("threads after all calls", Measure::ThreadsAfter)]
    {
        rows.push(row(samples, title.to_owned(), &variants, measure, whole));
    }
    table(&head_of("", &variants), rows)
}

pub(super) fn work(samples: &Samples) -> String {
    let variants = [Variant::Ours, Variant::GoFair, Variant::GoFairDurable];
    let mut rows = Vec::new();
    for phase in Phase::ALL {
        for (what, measure) in [("requests", Measure::Requests(phase)), ("syncs", Measure::Syncs(phase))] {
            let title = format!("{phase}, {what}");
            rows.push(row(samples, title, &variants, measure, |value| format!("{value:.2}")));
        }
    }
    table(&head_of("for each claim", &variants), rows)
}

/// What each step from the plain Go driver to ours changes.
pub(super) fn causes(samples: &Samples) -> String {
    let rate = |phase, shape| move |variant| (variant, Measure::Rate(phase, shape));
    let shapes = [
        (Phase::Prepare, Shape::SINGLE),
        (Phase::Prepare, Shape::TEN),
        (Phase::Prepare, Shape::HUNDRED),
        (Phase::Unprepare, Shape::SINGLE),
    ];
    let steps = [
        ("client-go's limiter off", Variant::GoDefault, Variant::GoUnlimited),
        ("the CDI library's watcher off", Variant::GoUnlimited, Variant::GoFair),
        ("durable writes", Variant::GoFair, Variant::GoFairDurable),
        ("the SDK: Rust and its design", Variant::GoFairDurable, Variant::Ours),
        ("left until the floor", Variant::Ours, Variant::Floor),
    ];
    let rows = steps.map(|(what, from, to)| {
        let cells = shapes.map(|(phase, shape)| {
            let of = rate(phase, shape);
            samples.ratio(of(to), of(from)).map_or_else(|| NONE.to_owned(), |ratio| format!("{ratio:.2}×"))
        });
        std::iter::once(what.to_owned()).chain(cells).collect()
    });
    let titles = shapes.map(|(phase, shape)| format!("{phase} {shape}"));
    let head: Vec<_> = std::iter::once("claims a second, times".to_owned()).chain(titles).collect();
    table(&head, rows)
}

fn with_floor() -> Vec<Variant> {
    [&Variant::DRIVERS[..], &[Variant::Floor]].concat()
}

/// A measure of several drivers: the median, and the range if there is one.
fn row(
    samples: &Samples,
    title: String,
    variants: &[Variant],
    measure: Measure,
    show: impl Fn(f64) -> String,
) -> Vec<String> {
    let cell = |variant: &Variant| {
        let median = samples.median(*variant, measure);
        let range = samples.range(*variant, measure).filter(|(least, most)| least < most);
        match (median, range) {
            (None, _) => NONE.to_owned(),
            (Some(median), None) => show(median),
            (Some(median), Some((least, most))) => {
                format!("{} ({}–{})", show(median), bare(&show(least)), bare(&show(most)))
            }
        }
    };
    std::iter::once(title).chain(variants.iter().map(cell)).collect()
}

/// Without its unit.
fn bare(shown: &str) -> &str {
    shown.split(' ').next().unwrap_or(shown)
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_median_and_the_range_of_several_rounds() {
        let mut samples = Samples::default();
        let show = |value: f64| format!("{value:.1} ms");
        let row =
            |samples: &Samples| row(samples, "it".to_owned(), &[Variant::Ours], Measure::Registered, show);
        assert_eq!(row(&samples), ["it", "–"]);
        samples.add(Variant::Ours, Measure::Registered, 2.0);
        assert_eq!(row(&samples), ["it", "2.0 ms"]);
        samples.add(Variant::Ours, Measure::Registered, 1.0);
        assert_eq!(row(&samples), ["it", "1.5 ms (1.0–2.0)"]);
    }
}
