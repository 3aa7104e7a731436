//! NUMA nodes near each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Nodes have numbers below this.
pub(super) const MAX_NODES: u32 = 1024;

/// The node itself, then the nearest others in ascending order, without those known to be on another socket.
///
/// Kernels and virtual machines leave out parts of this, so whatever cannot be read only makes the list shorter.
pub(super) fn near(root: &Path, node: u32) -> Vec<i64> {
    let mut nodes = vec![i64::from(node)];
    nodes.extend(nearest_others(root, node).unwrap_or_default().into_iter().map(i64::from));
    nodes
}

fn nearest_others(root: &Path, node: u32) -> Option<BTreeSet<u32>> {
    let distances = distances(root, node)?;
    let others = || distances.iter().filter(|(other, _)| **other != node);
    let least = others().map(|(_, distance)| *distance).min()?;
    let nearest = others().filter(|(_, distance)| **distance == least).map(|(other, _)| *other);
    let socket = socket(root, node);
    let on_another = |other: u32| match (socket, self::socket(root, other)) {
        (Some(socket), Some(other)) => socket != other,
        _ => false,
    };
    Some(nearest.filter(|other| !on_another(*other)).collect())
}

/// The distances to all nodes, which the kernel lists in the order of the nodes there are.
fn distances(root: &Path, node: u32) -> Option<BTreeMap<u32, u32>> {
    let text = std::fs::read_to_string(node_folder(root, node).join("distance")).ok()?;
    let distances: Vec<u32> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let nodes = nodes(root)?;
    (nodes.len() == distances.len()).then(|| nodes.into_iter().zip(distances).collect())
}

fn nodes(root: &Path) -> Option<BTreeSet<u32>> {
    let entries = std::fs::read_dir(root.join("devices/system/node")).ok()?;
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok();
    Some(entries.filter_map(Result::ok).filter_map(number).collect())
}

/// The socket of the node's first CPU; a node may have only memory.
fn socket(root: &Path, node: u32) -> Option<i64> {
    let list = std::fs::read_to_string(node_folder(root, node).join("cpulist")).ok()?;
    let first: u32 = list.trim().split([',', '-']).next()?.parse().ok()?;
    let path = root.join(format!("devices/system/cpu/cpu{first}/topology/physical_package_id"));
    let id: i64 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    // -1 stands for unknown.
    (id >= 0).then_some(id)
}

fn node_folder(root: &Path, node: u32) -> std::path::PathBuf {
    root.join(format!("devices/system/node/node{node}"))
}
