//! Names of slices.
//!
//! A name begins with the slice's index in hex, as the Go helper's do since 0.36: the scheduler tries the slices
//! of a pool in the order of their names. The hash at the end makes the name a function of what the slice is, so
//! that creating it twice is a conflict (409) and never a second slice.

use sha2::{Digest, Sha256};

use crate::{PoolName, Scope};

/// The longest name of an object that is a DNS subdomain.
const MAX_LEN: usize = 253;
const MIN_INDEX_DIGITS: usize = 5;
/// `-` and ten hex digits.
const HASH_LEN: usize = 11;

/// The name of slice `index` of `count` of a pool. `salt` is 0 unless somebody else's slice has that name.
pub(crate) fn slice_name(scope: &Scope, pool: &PoolName, index: usize, count: usize, salt: u32) -> String {
    let mut name = format!("{}-{}", encode_index(index, count), scope.driver());
    if let Some(node) = scope.node_name() {
        name.push('-');
        name.push_str(node.as_str());
    }
    name.truncate(MAX_LEN - HASH_LEN);
    let readable = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{readable}-{}", hash(scope, pool, index, count, salt))
}

/// The index of a name as the Go helper 0.37 reads it: what stands before the first `-` must be hex with just as
/// many digits as a pool of `count` slices needs.
pub(crate) fn index_of(name: &str, count: usize) -> Option<usize> {
    let (prefix, _) = name.split_once('-')?;
    if prefix.len() != index_digits(count) || !prefix.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    usize::from_str_radix(prefix, 16).ok()
}

fn encode_index(index: usize, count: usize) -> String {
    let digits = index_digits(count);
    format!("{index:0digits$x}")
}

fn index_digits(count: usize) -> usize {
    format!("{:x}", count.saturating_sub(1)).len().max(MIN_INDEX_DIGITS)
}

fn hash(scope: &Scope, pool: &PoolName, index: usize, count: usize, salt: u32) -> String {
    let node = scope.node_name().map_or("", AsRef::as_ref);
    // A zero byte is in no name, so it keeps the parts apart.
    let identity = format!("{}\0{pool}\0{node}\0{index}\0{count}\0{salt}", scope.driver());
    let digest = Sha256::digest(identity.as_bytes());
    let hex = digest.iter().take(5).flat_map(|byte| [byte >> 4, byte & 15]);
    hex.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DriverName, NodeName};
    use proptest::prelude::*;

    fn scope() -> Scope {
        Scope::node(DriverName::new("gpu.example.com").unwrap(), NodeName::new("node-1").unwrap())
    }

    fn pool() -> PoolName {
        PoolName::new("node-1").unwrap()
    }

    #[test]
    fn a_name_has_index_driver_node_and_hash() {
        let name = slice_name(&scope(), &pool(), 0, 1, 0);
        let hash = name.strip_prefix("00000-gpu.example.com-node-1-").unwrap();
        assert!(hash.len() == 10 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
    }

    #[test]
    fn a_network_name_has_no_node() {
        let scope = Scope::network(DriverName::new("net.example.com").unwrap());
        assert!(slice_name(&scope, &pool(), 18, 20, 0).starts_with("00012-net.example.com-"));
    }

    #[test]
    fn every_part_of_the_identity_changes_the_name() {
        let other_pool = PoolName::new("other").unwrap();
        let names = [
            slice_name(&scope(), &pool(), 0, 1, 0),
            slice_name(&scope(), &other_pool, 0, 1, 0),
            slice_name(&scope(), &pool(), 1, 2, 0),
            slice_name(&scope(), &pool(), 0, 2, 0),
            slice_name(&scope(), &pool(), 0, 1, 1),
        ];
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn the_index_is_read_back_and_odd_prefixes_are_not_taken_for_one() {
        assert_eq!(index_of("00010-gpu.example.com-x", 300), Some(16));
        assert_eq!(index_of("000010-gpu.example.com-x", 0x10_0001), Some(16));
        for odd in ["gpu.example.com-x", "0001-x", "000001-x", "0000g-x", "+0001-x", "00001"] {
            assert_eq!(index_of(odd, 3), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn names_are_legal_ordered_by_index_and_read_back(
            driver in "[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?",
            node in "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
            count in 1_usize..0x20_0000,
            seed: usize,
        ) {
            let (Ok(driver), Ok(node)) = (DriverName::new(driver), NodeName::new(node)) else { return Ok(()) };
            let scope = Scope::node(driver, node);
            let index = seed % count;
            let name = slice_name(&scope, &pool(), index, count, 0);
            prop_assert!(NodeName::new(name.clone()).is_ok(), "{}", name);
            prop_assert_eq!(index_of(&name, count), Some(index));
            if index > 0 {
                prop_assert!(slice_name(&scope, &pool(), index - 1, count, 0) < name);
            }
        }
    }
}
