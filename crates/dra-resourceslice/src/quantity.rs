//! Quantities with value semantics: `1024Mi` equals `1Gi`, whatever text the API server stores.

use std::{cmp::Ordering, fmt, hash::Hash, str::FromStr};

use k8s_openapi::apimachinery::pkg::api::resource as api;

/// A Kubernetes quantity, such as `80Gi`, `100m` or `2e3`.
///
/// Two quantities are equal when their values are, whatever their text: the API server rewrites `1024Mi` to
/// `1Gi`, and a publisher that compared text would write for ever. The text given is kept and sent as it is.
/// As in the API server the value is a multiple of 10⁻⁹ (finer ones are rounded up) of at most 2⁶³−1.
///
/// ```
/// use dra_resourceslice::Quantity;
///
/// assert_eq!(Quantity::parse("1024Mi")?, Quantity::parse("1Gi")?);
/// assert!(Quantity::parse("1500m")? > Quantity::from(1));
/// assert!(Quantity::parse("80 GiB").is_err());
/// # Ok::<(), dra_resourceslice::InvalidQuantity>(())
/// ```
#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Quantity {
    text: Box<str>,
    nanos: i128,
}

/// Why a string is not a quantity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid quantity {value:?}: {reason}")]
#[non_exhaustive]
pub struct InvalidQuantity {
    /// The input that was refused.
    pub value: String,
    /// The rule that the input breaks.
    pub reason: &'static str,
}

const NANOS: i128 = 1_000_000_000;
const MAX_NANOS: i128 = (i64::MAX as i128) * NANOS;

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    /// [`InvalidQuantity`] when the text is not a number with an optional suffix (`Ki` … `Ei`, `n`, `u`, `m`,
    /// `k`, `M` … `E`, or an exponent such as `e3`), or when the value is above 2⁶³−1.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidQuantity> {
        let text = text.into();
        match parse_nanos(&text) {
            Ok(nanos) => Ok(Self { text: text.into_boxed_str(), nanos }),
            Err(reason) => Err(InvalidQuantity { value: text, reason }),
        }
    }

    /// A whole number, of bytes say, in the largest binary unit that divides it, as the API server writes it. One that a
    /// quantity cannot hold becomes the largest that it can.
    ///
    /// ```
    /// use dra_resourceslice::Quantity;
    ///
    /// assert_eq!(Quantity::binary(40 << 30).as_str(), "40Gi");
    /// assert_eq!(Quantity::binary(1025).as_str(), "1025");
    /// ```
    #[must_use]
    pub fn binary(amount: u64) -> Self {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let mut shift = 0;
        while amount != 0 && shift < 60 && amount.trailing_zeros() >= shift + 10 {
            shift += 10;
        }
        let unit = units[shift as usize / 10];
        let text = format!("{}{unit}", amount >> shift).into_boxed_str();
        Self { text, nanos: i128::from(amount) * NANOS }
    }

    /// The text that the quantity was made from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value in units of 10⁻⁹.
    #[must_use]
    pub fn as_nanos(&self) -> i128 {
        self.nanos
    }

    /// Whether the value is a whole number.
    #[must_use]
    pub fn is_integer(&self) -> bool {
        self.nanos % NANOS == 0
    }

    /// The whole number that an API server computes with where it knows no fractions.
    pub(crate) fn rounded_up(&self) -> i128 {
        self.nanos.div_euclid(NANOS) + i128::from(self.nanos.rem_euclid(NANOS) > 0)
    }

    pub(crate) fn to_api(&self) -> api::Quantity {
        api::Quantity(self.text.to_string())
    }
}

/// The value of an API quantity in a text form of its own, so that equal values have equal texts.
/// Text that does not parse stays as it is.
pub(crate) fn canonical(quantity: &api::Quantity) -> api::Quantity {
    match parse_nanos(&quantity.0) {
        Ok(nanos) => api::Quantity(format!("{nanos}n")),
        Err(_) => quantity.clone(),
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Quantity {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Quantity {
    type Error = InvalidQuantity;

    fn try_from(text: String) -> Result<Self, InvalidQuantity> {
        Self::parse(text)
    }
}

impl TryFrom<&api::Quantity> for Quantity {
    type Error = InvalidQuantity;

    fn try_from(quantity: &api::Quantity) -> Result<Self, InvalidQuantity> {
        Self::parse(quantity.0.clone())
    }
}

impl From<Quantity> for String {
    fn from(quantity: Quantity) -> Self {
        quantity.text.into_string()
    }
}

impl From<i64> for Quantity {
    fn from(value: i64) -> Self {
        Self { text: value.to_string().into_boxed_str(), nanos: i128::from(value) * NANOS }
    }
}

impl From<u32> for Quantity {
    fn from(value: u32) -> Self {
        Self::from(i64::from(value))
    }
}

impl From<i32> for Quantity {
    fn from(value: i32) -> Self {
        Self::from(i64::from(value))
    }
}

const NOT_A_NUMBER: &str = "must be a decimal number with an optional suffix (Ki, Mi, Gi, Ti, Pi, Ei, n, u, m, k, M, G, T, P, E or eN)";
const TOO_LARGE: &str = "must be at most 2^63-1 in magnitude";
const TOO_MANY_DIGITS: &str = "has more or finer digits than a quantity can hold";
/// Both keep every intermediate product within `i128`; a value in range needs 28 digits.
const MAX_DIGITS: usize = 30;
const FINEST_SHIFT: i32 = -34;

fn parse_nanos(text: &str) -> Result<i128, &'static str> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = rest.bytes().position(|b| !b.is_ascii_digit() && b != b'.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(NOT_A_NUMBER);
    }
    let nanos = scaled(whole, fraction, suffix_scale(suffix)?)?;
    Ok(if negative { -nanos } else { nanos })
}

/// A suffix stands for 1024^binary or for 10^decimal.
#[derive(Clone, Copy)]
struct Scale {
    binary: u32,
    decimal: i32,
}

fn suffix_scale(suffix: &str) -> Result<Scale, &'static str> {
    let binary = |binary| Ok(Scale { binary, decimal: 0 });
    let decimal = |decimal| Ok(Scale { binary: 0, decimal });
    match suffix {
        "" => decimal(0),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        _ => decimal(exponent(suffix)?),
    }
}

fn exponent(suffix: &str) -> Result<i32, &'static str> {
    let digits = suffix.strip_prefix(['e', 'E']).ok_or(NOT_A_NUMBER)?;
    if !digits.trim_start_matches(['+', '-']).bytes().all(|b| b.is_ascii_digit()) {
        return Err(NOT_A_NUMBER);
    }
    digits.parse().map_err(|_| NOT_A_NUMBER)
}

/// The number in units of 10⁻⁹, rounded up.
fn scaled(whole: &str, fraction: &str, scale: Scale) -> Result<i128, &'static str> {
    // Zeros at the edges change nothing, and without them the length bounds the value.
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    if digits.len() > MAX_DIGITS {
        return Err(TOO_MANY_DIGITS);
    }
    let number: i128 = digits.parse().map_err(|_| NOT_A_NUMBER)?;
    let places = i32::try_from(fraction.len()).map_err(|_| TOO_MANY_DIGITS)?;
    // The value in nanos is number × 10^shift × 1024^binary.
    let shift = scale.decimal.saturating_add(9).saturating_sub(places);
    let factor = 1_i128 << (10 * scale.binary);
    let nanos =
        if shift >= 0 { scaled_up(number, shift, factor)? } else { scaled_down(number, shift, factor)? };
    if nanos > MAX_NANOS { Err(TOO_LARGE) } else { Ok(nanos) }
}

fn scaled_up(number: i128, shift: i32, factor: i128) -> Result<i128, &'static str> {
    let power = 10_i128.checked_pow(shift.unsigned_abs()).ok_or(TOO_LARGE)?;
    number.checked_mul(factor).and_then(|product| product.checked_mul(power)).ok_or(TOO_LARGE)
}

fn scaled_down(number: i128, shift: i32, factor: i128) -> Result<i128, &'static str> {
    if shift < FINEST_SHIFT {
        return Err(TOO_MANY_DIGITS);
    }
    let divisor = 10_i128.pow(shift.unsigned_abs());
    // Dividing first keeps the product within range: (q·d + r)·f / d = q·f + r·f / d.
    let part = mul_div_up(number % divisor, factor, divisor).ok_or(TOO_LARGE)?;
    let rest = (number / divisor).checked_mul(factor).ok_or(TOO_LARGE)?;
    rest.checked_add(part).ok_or(TOO_LARGE)
}

/// `remainder × factor / divisor`, rounded up, where `remainder < divisor`.
fn mul_div_up(remainder: i128, factor: i128, divisor: i128) -> Option<i128> {
    let mut result = 0_i128;
    let mut remainder = remainder;
    let mut factor = factor;
    // The factor is a power of 1024; going step by step keeps every product small.
    while factor > 1 {
        let product = remainder.checked_mul(1024)?;
        result = result.checked_mul(1024)?.checked_add(product / divisor)?;
        remainder = product % divisor;
        factor /= 1024;
    }
    result.checked_add(i128::from(remainder > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos(text: &str) -> i128 {
        Quantity::parse(text).unwrap_or_else(|error| panic!("{error}")).as_nanos()
    }

    #[test]
    fn whole_numbers_are_written_as_the_api_server_writes_them() {
        let table = [(0, "0"), (1, "1"), (1 << 30, "1Gi"), (4_864 << 20, "4864Mi"), (1 << 62, "4Ei")];
        for (amount, text) in table {
            assert_eq!(Quantity::binary(amount).as_str(), text);
            assert_eq!(Quantity::parse(text).unwrap().as_nanos(), Quantity::binary(amount).as_nanos());
        }
        assert_eq!(Quantity::binary(u64::MAX).as_str(), i64::MAX.to_string());
    }

    #[test]
    fn every_suffix_has_its_value() {
        let table = [
            ("0", 0),
            ("-0", 0),
            ("1", NANOS),
            ("+1", NANOS),
            ("-1", -NANOS),
            ("1.", NANOS),
            (".5", NANOS / 2),
            ("1n", 1),
            ("1u", 1_000),
            ("1m", 1_000_000),
            ("1k", 1_000 * NANOS),
            ("1M", 1_000_000 * NANOS),
            ("1G", 1_000_000_000 * NANOS),
            ("1T", 1_000_000_000_000 * NANOS),
            ("1P", 1_000_000_000_000_000 * NANOS),
            ("1E", 1_000_000_000_000_000_000 * NANOS),
            ("1Ki", 1024 * NANOS),
            ("1Mi", (1 << 20) * NANOS),
            ("1Gi", (1 << 30) * NANOS),
            ("1Ti", (1 << 40) * NANOS),
            ("1Pi", (1 << 50) * NANOS),
            ("1Ei", (1 << 60) * NANOS),
            ("2e3", 2_000 * NANOS),
            ("2E3", 2_000 * NANOS),
            ("2e-3", 2_000_000),
            ("2E", 2_000_000_000_000_000_000 * NANOS),
            ("1.5Gi", 1536 * (1 << 20) * NANOS),
            ("000.1", NANOS / 10),
            ("9223372036854775807", MAX_NANOS),
        ];
        for (text, expected) in table {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_finer_than_a_nano_is_rounded_up() {
        assert_eq!(nanos("0.1n"), 1);
        assert_eq!(nanos("1.0000000001"), NANOS + 1);
        assert_eq!(nanos("1e-40"), 1);
        assert_eq!(nanos(&format!("1.{}", "0".repeat(100))), NANOS);
        assert_eq!(nanos("0.0000000001Ki"), 103);
    }

    #[test]
    fn text_that_is_no_quantity_is_refused() {
        for bad in [
            "", "-", ".", "Gi", "1gi", "1 Gi", " 1", "1GB", "1.2.3", "1e", "1e+", "0x1", "1ki", "--1",
            "1e1.5",
        ] {
            let error = Quantity::parse(bad).expect_err(bad);
            assert_eq!(error.value, bad);
        }
    }

    #[test]
    fn values_above_the_range_are_refused() {
        for bad in ["9223372036854775808", "8Ei", "10E", "1e30", "1e400", "1e2147483647"] {
            assert_eq!(Quantity::parse(bad).expect_err(bad).reason, TOO_LARGE, "{bad}");
        }
        for bad in ["1e-44", "1e-2147483648", "9999999999999999999999999999999"] {
            assert_eq!(Quantity::parse(bad).expect_err(bad).reason, TOO_MANY_DIGITS, "{bad}");
        }
    }

    #[test]
    fn equality_and_canonical_text_go_by_value() {
        let same = [("1024Mi", "1Gi"), ("1000", "1k"), ("1500m", "1.5"), ("0", "0Gi")];
        for (a, b) in same {
            assert_eq!(Quantity::parse(a).unwrap(), Quantity::parse(b).unwrap());
            assert_eq!(canonical(&api::Quantity(a.into())), canonical(&api::Quantity(b.into())));
        }
        assert_ne!(canonical(&api::Quantity("1k".into())), canonical(&api::Quantity("1Ki".into())));
        assert_eq!(canonical(&api::Quantity("odd".into())).0, "odd");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused_without_a_panic(text in ".{0,60}") {
            let _ = Quantity::parse(text);
        }

        #[test]
        fn number_like_text_never_panics(text in "[-+]?[0-9]{0,50}\\.?[0-9]{0,50}(Ki|Ei|n|m|E|e-?[0-9]{0,12})?") {
            let _ = Quantity::parse(text);
        }

        #[test]
        fn integers_keep_their_value(value: i64) {
            prop_assert_eq!(Quantity::from(value), Quantity::parse(value.to_string()).unwrap());
        }
    }
}
