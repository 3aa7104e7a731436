//! The forms of names and values. Each rule says what is wrong with a text.

type Rule = Result<(), String>;

/// DNS label (RFC 1123): lower-case letters, digits and `-`, at most 63.
pub(super) fn dns_label(text: &str) -> Rule {
    limit(text, 63)?;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends_well = !text.starts_with('-') && !text.ends_with('-');
    must(!text.is_empty() && ends_well && text.chars().all(inner), "is no DNS label (a-z, 0-9, - inside)")
}

/// DNS subdomain: DNS labels joined by dots, at most 253 (labels have no limit of their own here).
pub(super) fn dns_subdomain(text: &str) -> Rule {
    limit(text, 253)?;
    let label = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.chars().all(inner)
    };
    must(text.split('.').all(label), "is no DNS subdomain (a-z, 0-9, - and . inside)")
}

/// Driver name: DNS subdomain of at most 63; upper case is tolerated.
pub(super) fn driver(text: &str) -> Rule {
    limit(text, 63)?;
    dns_subdomain(&text.to_ascii_lowercase())
}

/// Pool name: DNS subdomains joined by `/`, at most 253.
pub(super) fn pool(text: &str) -> Rule {
    limit(text, 253)?;
    text.split('/').try_for_each(dns_subdomain)
}

/// Name of an attribute or capacity: C identifier of at most 32, after an optional `domain/` of at most 63. The real server
/// forgets to check names with several slashes, and takes them.
pub(super) fn qualified(text: &str) -> Rule {
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [domain, name] => {
            driver(domain)?;
            name
        }
        _ => return Ok(()),
    };
    limit(name, 32)?;
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let starts_well = name.starts_with(first);
    must(
        starts_well && name.chars().all(|c| first(c) || c.is_ascii_digit()),
        "is no C identifier, with or without `domain/` before it",
    )
}

/// Label key: name of at most 63 with an optional DNS subdomain and `/` before it.
pub(super) fn label_key(text: &str) -> Rule {
    let name = match text.split_once('/') {
        None => text,
        Some((domain, name)) => {
            dns_subdomain(domain)?;
            name
        }
    };
    must(!name.is_empty(), "is no label key")?;
    label_value(name)
}

/// Label value: empty, or letters, digits, `-`, `_`, `.` with a letter or digit at both ends, at most 63.
pub(super) fn label_value(text: &str) -> Rule {
    limit(text, 63)?;
    let end = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| end(c) || matches!(c, '-' | '_' | '.');
    let fits = text.is_empty() || (text.starts_with(end) && text.ends_with(end) && text.chars().all(inner));
    must(fits, "is no label value (letters, digits, - _ . inside)")
}

/// Strict `SemVer` 2.0.0 of at most 64 bytes.
pub(super) fn semver(text: &str) -> Rule {
    limit(text, 64)?;
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let digits = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let core_fits = core.split('.').count() == 3 && core.split('.').all(number);
    let pre_fits =
        pre.is_none_or(|pre| pre.split('.').all(|part| word(part) && (!digits(part) || number(part))));
    let build_fits = build.is_none_or(|build| build.split('.').all(word));
    must(
        core_fits && pre_fits && build_fits,
        "is no semantic version (three numbers, no leading zeros, no v)",
    )
}

/// Lower-case UUID.
pub(super) fn uuid(text: &str) -> Rule {
    let fits = text.len() == 36
        && text.char_indices().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_digit() || ('a'..='f').contains(&c),
        });
    must(fits, "is no lower-case UUID")
}

/// At most `bytes` bytes.
pub(super) fn limit(text: &str, bytes: usize) -> Rule {
    if text.len() > bytes { Err(format!("has {} bytes, the limit is {bytes}", text.len())) } else { Ok(()) }
}

fn must(fits: bool, reason: &str) -> Rule {
    if fits { Ok(()) } else { Err(reason.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_right_form_pass_and_others_do_not() {
        type Table<'a> = [(fn(&str) -> Rule, &'a str, bool)];
        let long = "a".repeat(64);
        let table: &Table<'_> = &[
            (dns_label, "gpu-0", true),
            (dns_label, "GPU-0", false),
            (dns_label, "gpu_0", false),
            (dns_label, "-a", false),
            (dns_label, &long, false),
            (dns_subdomain, "gpu.example.com", true),
            (dns_subdomain, "gpu..com", false),
            (driver, "GPU.example.com", true),
            (driver, &long, false),
            (pool, "node-1/rack.2", true),
            (pool, "node-1//a", false),
            (qualified, "memory", true),
            (qualified, "gpu.example.com/driver_Version", true),
            (qualified, "driver-version", false),
            (qualified, "a/b/c", true),
            (qualified, "/b", false),
            (qualified, "9lives", false),
            (qualified, "a123456789012345678901234567890123", false),
            (label_key, "example.com/broken", true),
            (label_key, "example.com/", false),
            (label_value, "", true),
            (label_value, "a_b.c", true),
            (label_value, "a b", false),
            (semver, "1.0.0", true),
            (semver, "1.0.0-rc.1+build.5", true),
            (semver, "535", false),
            (semver, "550.127.08", false),
            (semver, "6.19.14.31400000", false),
            (semver, "v1.0.0", false),
            (semver, "1.0.0-01", false),
            (uuid, "01234567-89ab-cdef-0123-456789abcdef", true),
            (uuid, "01234567-89AB-cdef-0123-456789abcdef", false),
        ];
        for (rule, text, fits) in table {
            assert_eq!(rule(text).is_ok(), *fits, "{text}");
        }
    }
}
