//! The names of our files: pure, and each readable in one way only.
//!
//! `<vendor>+<class>+<claim UID>.json`; `+` can stand in none of the three. A temporary file puts `.` before and
//! `.<16 hex digits>.tmp` behind: it is the ending that keeps runtimes from loading it, they do read dot files.

use crate::error::Error;
use crate::file_id::FileId;
use crate::name::Kind;

/// The longest file name that Linux file systems take, in bytes.
const NAME_MAX: usize = 255;

/// The file of a claim.
pub(crate) fn of(kind: &Kind, id: &FileId) -> String {
    named(kind, id.as_str())
}

/// A file that is never kept, to try out writing. No claim has this name: a [`FileId`] cannot hold `_`.
pub(crate) fn of_trial(kind: &Kind) -> String {
    named(kind, TRIAL)
}

const TRIAL: &str = "_trial";

fn named(kind: &Kind, id: &str) -> String {
    format!("{}+{}+{id}.json", kind.vendor(), kind.class())
}

/// The id in the name of a file of this kind.
pub(crate) fn id_in(kind: &Kind, name: &str) -> Option<FileId> {
    id_text_in(kind, name)?.parse().ok()
}

fn id_text_in<'a>(kind: &Kind, name: &'a str) -> Option<&'a str> {
    let rest = name.strip_prefix(kind.vendor().as_str())?.strip_prefix('+')?;
    rest.strip_prefix(kind.class().as_str())?.strip_prefix('+')?.strip_suffix(".json")
}

/// A temporary name for the file `name`.
pub(crate) fn temp(name: &str, random: u64) -> String {
    format!(".{name}.{random:016x}.tmp")
}

/// Whether `name` is a temporary name for a file of this kind.
pub(crate) fn is_temp(kind: &Kind, name: &str) -> bool {
    let inner = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".tmp"));
    let Some((file, random)) = inner.and_then(|inner| inner.rsplit_once('.')) else { return false };
    let random_is_ours = random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit());
    random_is_ours && (id_in(kind, file).is_some() || id_text_in(kind, file) == Some(TRIAL))
}

/// Makes sure that the longest name that files of this kind can need, temporary ones included, is possible.
pub(crate) fn check_length(kind: &Kind) -> Result<(), Error> {
    let length = temp(&named(kind, &"u".repeat(FileId::MAX_LEN)), 0).len();
    if length > NAME_MAX {
        return Err(Error::NameTooLong { kind: kind.to_string(), length, limit: NAME_MAX });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        text.parse().unwrap()
    }

    fn id(text: &str) -> FileId {
        text.parse().unwrap()
    }

    #[test]
    fn file_names_differ_for_every_vendor_class_and_claim() {
        // Joined by `-` or `_`, some of these would be one name.
        let kinds = ["aa-b.com/cc", "aa/b.com-cc", "vv.com/cc-x", "vv.com/cc", "vv.com/cc-x-y", "vv/com-cc"];
        let mut names: Vec<String> = kinds
            .iter()
            .flat_map(|text| ["x", "y", "x-y"].map(|claim| of(&kind(text), &id(claim))))
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_id_is_read_back_from_our_names_only() {
        let ours = kind("k8s.gpu.example.com/claim");
        assert_eq!(id_in(&ours, "k8s.gpu.example.com+claim+abc.json"), Some(id("abc")));
        for foreign in [
            "k8s.gpu.example.com+claim+abc.yaml",
            "k8s.gpu.example.com+claim+.json",
            "k8s.gpu.example.com+claim+a_b.json",
            "k8s.gpu.example.com+claim+a+b.json",
            "k8s.gpu.example.com+claims+abc.json",
            "k8s.gpu.example.com-claim_abc.json",
            "k8s.gpu.example.com_metadata_abc_req.json",
            ".k8s.gpu.example.com+claim+abc.json",
            "vendor.json",
            "",
        ] {
            assert_eq!(id_in(&ours, foreign), None, "{foreign}");
        }
    }

    #[test]
    fn temporary_names_have_an_ending_that_no_runtime_loads_and_are_recognised() {
        let ours = kind("k8s.gpu.example.com/claim");
        for file in [of(&ours, &id("abc")), of_trial(&ours)] {
            let temp = temp(&file, 0xab);
            assert_eq!(temp, format!(".{file}.00000000000000ab.tmp"));
            assert!(is_temp(&ours, &temp));
            assert!(!is_temp(&kind("other.com/claim"), &temp));
            assert_eq!(id_in(&ours, &temp), None);
        }
        for foreign in [
            "spec.123.tmp",
            ".x.json.00000000000000ab.tmp",
            "k8s.gpu.example.com+claim+abc.json",
            ".k8s.gpu.example.com+claim+abc.json.ab.tmp",
            ".k8s.gpu.example.com+claim+abc.json.tmp",
            ".k8s.gpu.example.com+claim+abc.json.00000000000000ab.json",
        ] {
            assert!(!is_temp(&ours, foreign), "{foreign}");
        }
    }

    #[test]
    fn a_kind_must_leave_room_for_a_claim_and_the_temporary_decoration() {
        let fits = kind(&format!("{}/claim", "v".repeat(157)));
        let longest = temp(&of(&fits, &id(&"u".repeat(64))), u64::MAX);
        assert_eq!(longest.len(), NAME_MAX);
        assert!(check_length(&fits).is_ok());
        let error = check_length(&kind(&format!("{}/claim", "v".repeat(158)))).unwrap_err();
        assert!(matches!(error, Error::NameTooLong { length: 256, limit: 255, .. }), "{error}");
    }
}
