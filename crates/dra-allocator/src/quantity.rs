//! Quantities in the one spelling that the real server stores: `1024Mi` becomes `1Gi`, `1000` becomes `1k`.
//!
//! Source: the quantity rules of apimachinery (`pkg/api/resource`).

const NANOS: i128 = 1_000_000_000;
/// The largest value that Kubernetes keeps of long numbers.
pub(crate) const MAX_NANOS: i128 = (i64::MAX as i128) * NANOS;
/// Decimal numbers of so many digits are kept whatever their power is.
const UNCAPPED_DIGITS: usize = 18;

/// Suffixes of powers of 1000, from nano to exa.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// Suffixes of powers of 1024, from kibi to exbi.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// The stored spelling of a quantity, or `None` if it is no quantity (or beyond 10^29).
#[must_use]
pub fn canonical(text: &str) -> Option<String> {
    let (nanos, format) = parse(text)?;
    let whole = nanos % NANOS == 0;
    let small = nanos.abs() < 1024 * NANOS;
    Some(match format {
        Format::Binary if whole && !small => binary(nanos / NANOS),
        Format::Exponent => {
            decimal(nanos, |power| if power == 0 { String::new() } else { format!("e{power}") })
        }
        Format::Binary | Format::Decimal => decimal(nanos, |power| {
            DECIMAL
                .iter()
                .find(|(_, p)| *p == power)
                .map(|(suffix, _)| (*suffix).to_owned())
                .unwrap_or_default()
        }),
    })
}

/// An amount of billionths, in powers of 1024 if the sample is written so.
#[must_use]
pub fn spelled_like(nanos: i128, sample: &str) -> String {
    const KIBI: i128 = 1024 * NANOS;
    let text = if sample.ends_with('i') && nanos % KIBI == 0 {
        format!("{}Ki", nanos / KIBI)
    } else {
        format!("{nanos}n")
    };
    canonical(&text).unwrap_or(text)
}

/// The value of a quantity in billionths, or `None` as above.
#[must_use]
pub fn nanos(text: &str) -> Option<i128> {
    Some(parse(text)?.0)
}

/// The same without the cap that Kubernetes puts on long numbers: the API server's validation of request policies refuses
/// such numbers (seen with 1.37).
#[must_use]
pub fn uncapped_nanos(text: &str) -> Option<i128> {
    let (nanos, _, _) = parse_uncapped(text)?;
    Some(nanos)
}

/// The value in billionths, and how it was written. Finer values round away from zero. Kubernetes caps values at 2^63 - 1,
/// but for decimal ones of few digits, such as `16E` (`ParseQuantity`).
fn parse(text: &str) -> Option<(i128, Format)> {
    let (nanos, format, digits) = parse_uncapped(text)?;
    let capped = format == Format::Binary || digits > UNCAPPED_DIGITS;
    Some((if capped { nanos.clamp(-MAX_NANOS, MAX_NANOS) } else { nanos }, format))
}

/// With the count of its digits.
fn parse_uncapped(text: &str) -> Option<(i128, Format, usize)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = i32::try_from(fraction.len()).ok()?;
    let (factor, power, format) = unit(suffix)?;
    let nanos = scale(mantissa.checked_mul(factor)?, power.checked_sub(decimals)?.checked_add(9)?)?;
    let digits = whole.trim_start_matches('0').len() + fraction.len();
    Some((if text.starts_with('-') { -nanos } else { nanos }, format, digits))
}

/// A suffix as factor × 10^power.
fn unit(suffix: &str) -> Option<(i128, i32, Format)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((1, *power, Format::Decimal));
    }
    if let Some(step) = BINARY.iter().position(|name| *name == suffix) {
        return Some((1_i128 << (10 * (step + 1)), 0, Format::Binary));
    }
    let power = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((1, power, Format::Exponent))
}

fn scale(value: i128, power: i32) -> Option<i128> {
    let factor = 10_i128.checked_pow(power.unsigned_abs())?;
    if power >= 0 {
        return value.checked_mul(factor);
    }
    Some(value / factor + i128::from(value % factor != 0))
}

fn binary(mut value: i128) -> String {
    let mut suffix = "";
    for next in BINARY {
        if value % 1024 != 0 {
            break;
        }
        value /= 1024;
        suffix = next;
    }
    format!("{value}{suffix}")
}

fn decimal(mut value: i128, suffix: impl Fn(i32) -> String) -> String {
    if value == 0 {
        return "0".into();
    }
    let mut power = -9;
    while value % 1000 == 0 && power < 18 {
        value /= 1000;
        power += 3;
    }
    format!("{value}{}", suffix(power))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_are_the_servers() {
        for (text, stored) in [
            ("80Gi", "80Gi"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("0.5", "500m"),
            ("0", "0"),
            ("0Gi", "0"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1000m", "1"),
            ("-1000", "-1k"),
            ("+3", "3"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("2E", "2E"),
            ("1.", "1"),
            (".5", "500m"),
            ("0.0000000001", "1n"),
            ("16E", "16E"),
            ("16Ei", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775807"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(stored), "{text}");
        }
    }

    #[test]
    fn an_amount_is_spelled_like_its_sample() {
        let nanos = nanos("30Gi").expect("a quantity");
        assert_eq!(spelled_like(nanos, "80Gi"), "30Gi");
        assert_eq!(spelled_like(nanos, "80"), "32212254720");
        assert_eq!(spelled_like(1_500_000_000, "1Gi"), "1500m");
    }

    #[test]
    fn what_is_no_quantity_is_none() {
        for text in ["", "Gi", "1.2.3", "1 Gi", "1gi", "1KiB", "abc", ".", "-", "1e", "1e99999"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_stored_spelling_is_stable_and_keeps_the_value(
            number in 0_u64..10_000_000_000, suffix in "(n|u|m|k|M|G|Ki|Mi|Gi|Ti|e3|e-2)?"
        ) {
            let text = format!("{number}{suffix}");
            let stored = canonical(&text).expect("a quantity");
            prop_assert_eq!(canonical(&stored), Some(stored.clone()));
            prop_assert_eq!(parse(&stored).map(|p| p.0), parse(&text).map(|p| p.0));
        }
    }
}
