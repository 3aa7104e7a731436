//! The device nodes of the host.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::cdi::DeviceNode;

/// Fills in what the edits leave to the host's node: type, numbers and mode.
///
/// The host is not asked if type and major are given. A symbolic link is no device node, as in the Go library.
///
/// # Errors
/// If the host has no such node, or one of another type.
pub(super) fn complete(node: &DeviceNode) -> Result<DeviceNode, String> {
    let mut node = node.clone();
    if node.host_path.is_empty() {
        node.host_path.clone_from(&node.path);
    }
    if !node.r#type.is_empty() && (node.major != 0 || node.r#type == "p") {
        return Ok(node);
    }
    let path = &node.host_path;
    let metadata =
        fs::symlink_metadata(path).map_err(|error| format!("device node {path:?} of the host: {error}"))?;
    let kind = metadata.file_type();
    let found = if kind.is_char_device() {
        "c"
    } else if kind.is_block_device() {
        "b"
    } else if kind.is_fifo() {
        "p"
    } else {
        return Err(format!("{path:?} on the host is no device node"));
    };
    match node.r#type.as_str() {
        "" => found.clone_into(&mut node.r#type),
        "u" if found == "c" => {}
        wanted if wanted == found => {}
        wanted => return Err(format!("{path:?} on the host is of type {found}, not {wanted}")),
    }
    if node.major == 0 && node.r#type != "p" {
        (node.major, node.minor) = numbers(metadata.rdev());
    }
    node.file_mode = node.file_mode.or_else(|| Some(metadata.mode()));
    Ok(node)
}

/// Major and minor number, as Linux packs them: 12 and 20 bits that are interleaved.
fn numbers(device: u64) -> (u32, u32) {
    let bits = |shift: u32, mask: u64| u32::try_from((device >> shift) & mask).unwrap_or(0);
    (bits(8, 0xfff) | bits(32, 0xffff_f000), bits(0, 0xff) | bits(12, 0xffff_ff00))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(node: Value) -> DeviceNode {
        serde_json::from_value(node).expect("a node")
    }

    #[test]
    fn the_host_tells_what_is_left_out() {
        let node = complete(&node(json!({"path": "/dev/mine", "hostPath": "/dev/null"}))).expect("there");
        assert_eq!((node.r#type.as_str(), node.major, node.minor), ("c", 1, 3));
        assert_eq!(node.file_mode.map(|mode| mode & 0o170_000), Some(0o020_000));
    }

    #[test]
    fn with_type_and_major_the_host_is_not_asked() {
        let node =
            complete(&node(json!({"path": "/dev/no-such", "type": "c", "major": 195}))).expect("complete");
        assert_eq!((node.major, node.file_mode), (195, None));
    }

    #[test]
    fn missing_wrong_and_linked_nodes_are_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).expect("linked");
        assert!(complete(&node(json!({"path": "/dev/no-such"}))).is_err());
        assert!(complete(&node(json!({"path": "/dev/null", "type": "b"}))).is_err());
        assert!(complete(&node(json!({"path": folder.path()}))).is_err());
        assert!(complete(&node(json!({"path": link}))).is_err());
    }

    #[test]
    fn numbers_above_eight_bits_are_whole() {
        assert_eq!(numbers(0x0103), (1, 3));
        // 300 is 0x12c: the low byte stays in place, the rest moves up by twelve bits.
        assert_eq!(numbers(0x0010_0000 | 195 << 8 | 0x2c), (195, 300));
        assert_eq!(numbers(0x1000 << 32 | 0x0100), (0x1001, 0));
    }
}
