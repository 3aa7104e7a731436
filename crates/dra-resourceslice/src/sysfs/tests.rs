//! Attributes from a tree made for the test.

use std::{fs, os::unix::fs::symlink};

use super::*;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.path("bus/pci/devices")).unwrap();
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.0.path())
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A device whose folder is here, and a link to it with this target.
    fn device(&self, folder: &str, target: &str) -> PciAddress {
        let address = folder.rsplit('/').next().unwrap();
        fs::create_dir_all(self.path(folder)).unwrap();
        symlink(target, self.path("bus/pci/devices").join(address)).unwrap();
        PciAddress::new(address).unwrap()
    }

    /// Four nodes on two sockets.
    fn nodes(&self) {
        let rows = ["10 12 12 32", "12 10 32 12", "12 32 10 12", "32 12 12 10"];
        for (node, row) in rows.iter().enumerate() {
            self.file(&format!("devices/system/node/node{node}/distance"), row);
            self.file(
                &format!("devices/system/node/node{node}/cpulist"),
                &format!("{}-{}\n", node * 8, node * 8 + 7),
            );
            let socket = node / 2;
            self.file(
                &format!("devices/system/cpu/cpu{}/topology/physical_package_id", node * 8),
                &format!("{socket}\n"),
            );
        }
    }
}

fn text(attribute: (QualifiedName, AttributeValue)) -> (String, String) {
    let AttributeValue::String(value) = attribute.1 else { panic!("not a text") };
    (attribute.0.to_string(), value)
}

#[test]
fn addresses_are_checked() {
    for good in ["0000:01:00.0", "0000:ff:1f.7", "10000:e1:00.0", "FFFFFFFF:00:00.0"] {
        assert_eq!(PciAddress::new(good).unwrap().as_str(), good.to_ascii_lowercase());
    }
    for bad in [
        "",
        "01:00.0",
        "000:01:00.0",
        "000000000:01:00.0",
        "0000:1:00.0",
        "0000:01:20.0",
        "0000:01:00.8",
        "0000.01:00:0",
        "0000:01:00.00",
        "0000:0g:00.0",
        "0000:01:00.0 ",
    ] {
        assert!(PciAddress::new(bad).is_err(), "{bad}");
    }
    let (name, value) = text(PciAddress::new("0000:01:00.0").unwrap().bus_id_attribute().unwrap());
    assert_eq!((name.as_str(), value.as_str()), ("resource.kubernetes.io/pciBusID", "0000:01:00.0"));
}

#[test]
fn the_root_complex_is_the_first_folder_below_devices() {
    let tree = Tree::new();
    let plain = tree.device(
        "devices/pci0000:00/0000:00:01.0/0000:01:00.0",
        "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
    );
    let vmd = tree.device(
        "devices/pci0000:e0/0000:e0:0e.0/pci10000:e0/10000:e1:00.0",
        "../../../devices/pci0000:e0/0000:e0:0e.0/pci10000:e0/10000:e1:00.0",
    );
    let absolute = tree.device("devices/pci0000:20/0000:21:00.0", "/sys/devices/pci0000:20/0000:21:00.0");
    for (device, root) in [(plain, "pci0000:00"), (vmd, "pci0000:e0"), (absolute, "pci0000:20")] {
        let found = text(tree.sysfs().pcie_root(&device).unwrap());
        assert_eq!(found, ("resource.kubernetes.io/pcieRoot".to_owned(), root.to_owned()));
    }
}

#[test]
fn links_that_lead_elsewhere_are_refused() {
    let tree = Tree::new();
    let targets = [
        "../../../devices/virtual/0000:01:00.0",
        "../../../devices/pci0000:00/other",
        "../../../../x",
        "/etc/pci0000:00/0000:01:00.0",
    ];
    for target in targets {
        let device = tree.device("devices/pci0000:00/0000:01:00.0", target);
        let error = tree.sysfs().pcie_root(&device).unwrap_err();
        assert!(matches!(error, SysfsError::Content { .. }), "{target}: {error}");
        fs::remove_file(tree.path("bus/pci/devices/0000:01:00.0")).unwrap();
    }
    let missing = tree.sysfs().pcie_root(&PciAddress::new("0000:09:00.0").unwrap()).unwrap_err();
    assert!(missing.to_string().contains("0000:09:00.0"), "{missing}");
}

#[test]
fn the_numa_node_has_a_scalar_and_a_list_form() {
    let tree = Tree::new();
    tree.nodes();
    let device = tree.device("devices/pci0000:00/0000:01:00.0", "../../../devices/pci0000:00/0000:01:00.0");
    let numa = "devices/pci0000:00/0000:01:00.0/numa_node";
    let node = |form| tree.sysfs().numa_node(&device, form).map(|found| found.map(|(_, value)| value));
    tree.file(numa, "0\n");
    assert_eq!(node(NumaForm::Scalar).unwrap(), Some(AttributeValue::Int(0)));
    // Node 2 is as near as node 1, but on another socket.
    assert_eq!(node(NumaForm::List).unwrap(), Some(AttributeValue::Ints(vec![0, 1])));
    tree.file("devices/system/node/node2/cpulist", "\n");
    assert_eq!(node(NumaForm::List).unwrap(), Some(AttributeValue::Ints(vec![0, 1, 2])));
    tree.file("devices/system/node/node0/distance", "10 x");
    assert_eq!(node(NumaForm::List).unwrap(), Some(AttributeValue::Ints(vec![0])));
    tree.file(numa, "-1\n");
    assert_eq!(node(NumaForm::Scalar).unwrap(), None);
    for odd in ["", "x", "1024"] {
        tree.file(numa, odd);
        assert!(matches!(node(NumaForm::Scalar), Err(SysfsError::Content { .. })), "{odd}");
    }
}

#[test]
fn attributes_that_cannot_be_read_are_left_out() {
    let tree = Tree::new();
    let device = tree.device("devices/pci0000:00/0000:01:00.0", "../../../devices/pci0000:00/0000:01:00.0");
    let names = || -> Vec<String> {
        let attributes = tree.sysfs().attributes(&device, NumaForm::Scalar);
        attributes.iter().map(|(name, _)| name.as_str().replace("resource.kubernetes.io/", "")).collect()
    };
    assert_eq!(names(), ["pciBusID", "pcieRoot"]);
    tree.file("devices/pci0000:00/0000:01:00.0/numa_node", "1\n");
    assert_eq!(names(), ["pciBusID", "pcieRoot", "numaNode"]);
    fs::remove_file(tree.path("bus/pci/devices/0000:01:00.0")).unwrap();
    assert_eq!(names(), ["pciBusID"]);
}
