//! Random but valid specs. The number of a case gives the same spec each time.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, Result};
use dra_cdi::{
    ContainerEdits, DeviceNode, DeviceType, Hook, HookName, IntelRdt, Kind, Mount, NetDevice, Permissions,
    Spec,
};

/// Texts that JSON, YAML, Go and C may see differently.
const TEXTS: [&str; 20] = [
    "1",
    "",
    "a b",
    "yes",
    "0x10",
    "~",
    "- a: b # c",
    "a=b=c",
    "\"quoted\" 'single' \\back\\/slash",
    "two\nlines\r\n\ttab ",
    "\u{1}\u{1b}[0m",
    "del \u{7f} c1 \u{80}\u{9f}",
    "next line \u{85} end",
    "separators \u{2028}\u{2029} end",
    "\u{feff}bom",
    "non-characters \u{fffe}\u{ffff}",
    "日本語 é \u{a0}\u{fffd}",
    "😀 outside the basic plane \u{10ffff}",
    "trailing space ",
    "{\"json\": [1, null]}",
];

/// What a node of the host gives to a container's node.
pub(super) struct HostNode {
    pub(super) device_type: DeviceType,
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// The host's nodes that specs refer to; any Linux has these numbers for them.
pub(super) fn host_node(path: &Path) -> HostNode {
    let minor = match path.to_str() {
        Some("/dev/zero") => 5,
        Some("/dev/full") => 7,
        _ => 3,
    };
    HostNode { device_type: DeviceType::Char, major: 1, minor }
}

/// The spec of a case.
pub(super) fn spec(case: usize) -> Result<Spec> {
    let mut random = Random(case as u64);
    let kind: Kind = random
        .pick(&["k8s.gpu.example.com/claim", "aa/bb", "Ven_dor.com/cl_ass-x", "k8s.0.example/dotted.class"])
        .parse()?;
    // Only some cases use new features, so that the old versions are judged too.
    let newest = random.below(4);
    let mut parts = Parts { random, newest, used: 0 };
    let common = if parts.random.one_in(3) { ContainerEdits::new() } else { parts.edits() };
    let mut devices = Vec::new();
    for i in 0..=parts.random.below(3) {
        let name = match parts.random.below(3) {
            0 => format!("gpu-{i}"),
            1 => format!("{i}000:3b:00.0"),
            _ => format!("6b7e3f0e-0c4c-4b6f-9c39-1a2b3c4d5e6f-gpu-{i}"),
        };
        devices.push((name.parse()?, parts.edits()));
    }
    let spec = Spec::new(kind, common, devices).with_context(|| format!("making the spec of case {case}"))?;
    if parts.newest > 0 && parts.random.one_in(4) {
        return Ok(spec.with_annotations([("example.com/why", parts.text()), ("b", "2".to_owned())])?);
    }
    Ok(spec)
}

/// A spec that is right only as long as the delete character is escaped.
pub(super) fn with_delete_character() -> Result<Spec> {
    let device = ("dev".parse()?, ContainerEdits::new().env("A", "\u{7f}"));
    Ok(Spec::new("vendor.com/class".parse()?, ContainerEdits::new(), [device])?)
}

/// Makes edits whose names and paths are used once in a spec, so that none replaces another.
struct Parts {
    random: Random,
    /// 0: only what CDI 0.3.0 has; 1: also 0.4 and 0.5; 2: also 0.7; 3: everything.
    newest: u64,
    used: u32,
}

impl Parts {
    fn edits(&mut self) -> ContainerEdits {
        let mut edits = ContainerEdits::new().env(format!("VAR_{}", self.fresh()), self.text());
        for _ in 0..self.random.below(3) {
            edits = edits.device_node(self.device_node());
        }
        for _ in 0..self.random.below(3) {
            edits = edits.mount(self.mount());
        }
        for _ in 0..self.random.below(2) {
            edits = edits.hook(self.hook());
        }
        if self.newest >= 2 && self.random.one_in(2) {
            edits = edits.additional_gid(self.fresh() + 1).intel_rdt(self.rdt());
        }
        if self.newest >= 3 && self.random.one_in(2) {
            let n = self.fresh();
            edits = edits.net_device(NetDevice::new(format!("host{n}"), format!("net{n}")));
        }
        edits
    }

    fn device_node(&mut self) -> DeviceNode {
        let n = self.fresh();
        let numbered = DeviceNode::new(format!("/dev/gpu{n}"));
        let types = [DeviceType::Block, DeviceType::Char, DeviceType::Fifo];
        let mut node = if self.newest >= 1 && self.random.one_in(2) {
            numbered.host_path(*self.random.pick(&["/dev/null", "/dev/zero", "/dev/full"]))
        } else {
            numbered.device_type(*self.random.pick(&types)).major_minor(195 + n, n * 300)
        };
        if self.random.one_in(2) {
            node = node.file_mode(*self.random.pick(&[0o660, 0o600, 0o777, 0o4]));
        }
        if self.random.one_in(2) {
            node = node.permissions(*self.random.pick(&[
                Permissions::READ,
                Permissions::READ_WRITE,
                Permissions::READ_WRITE_MKNOD,
            ]));
        }
        if self.random.one_in(2) {
            node = node.uid(*self.random.pick(&[0, 1000])).gid(*self.random.pick(&[0, u32::MAX]));
        }
        node
    }

    fn mount(&mut self) -> Mount {
        let n = self.fresh();
        let target = format!("/usr/{}/{n}", self.random.pick(&["lib", "lib é", "a/b/c", "colon:dash-#"]));
        match self.random.below(if self.newest >= 1 { 4 } else { 3 }) {
            0 => Mount::new("/usr/lib/x", target),
            1 => Mount::new("/opt/日本", target).read_only(),
            2 => Mount::new("/", target).options(["bind", "nosuid", "nodev"]).read_only(),
            _ => Mount::new("tmpfs", target).mount_type("tmpfs"),
        }
    }

    fn hook(&mut self) -> Hook {
        let name = *self.random.pick(&[
            HookName::Prestart,
            HookName::CreateRuntime,
            HookName::CreateContainer,
            HookName::StartContainer,
            HookName::Poststart,
            HookName::Poststop,
        ]);
        let mut hook = Hook::new(name, format!("/usr/bin/hook-{}", self.fresh()));
        if self.random.one_in(2) {
            hook = hook.args(["hook".to_owned(), self.text()]).env("HOOK", self.text());
        }
        if self.random.one_in(2) {
            hook = hook.timeout(NonZeroU32::MIN.saturating_add(self.fresh()));
        }
        hook
    }

    fn rdt(&mut self) -> IntelRdt {
        let mut rdt = IntelRdt::new();
        if self.random.one_in(2) {
            let classes: &[&str] = if self.newest >= 3 { &["/", "gold"] } else { &["gold"] };
            rdt = rdt.clos_id(*self.random.pick(classes)).l3_cache_schema(self.text());
        }
        if self.random.one_in(2) {
            rdt = rdt.mem_bw_schema("MB:0=50");
        }
        if self.newest >= 3 && self.random.one_in(2) {
            rdt = rdt.schemata(["L3:0=f".to_owned(), self.text()]).enable_monitoring(self.random.one_in(2));
        }
        rdt
    }

    fn text(&mut self) -> String {
        format!("{}{}", self.random.pick(&TEXTS), self.random.pick(&TEXTS))
    }

    fn fresh(&mut self) -> u32 {
        self.used += 1;
        self.used
    }
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        // The remainder is below the length, which fits both types.
        &choices[usize::try_from(self.below(choices.len() as u64)).unwrap_or(0)]
    }
}
