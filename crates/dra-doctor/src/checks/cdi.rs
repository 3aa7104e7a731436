//! A container runtime that does not read the driver's CDI files.

use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::Snapshot;

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.runtime.verdict(|runtime| {
        let subject = format!("container runtime at {}", runtime.endpoint.display());
        if runtime.enable_cdi == Some(false) {
            return Verdict::Looked(vec![Finding::new(
                FindingKind::CdiOff,
                subject,
                "CDI is off: containers with devices do not start, or start without them",
                "set `enable_cdi = true` in the CRI plugin's part of containerd's configuration and restart it; from containerd 2.4 \
                 on it is always on. Delete pods that run without their devices",
            )]);
        }
        let Some(folders) = &runtime.cdi_folders else {
            return Verdict::CouldNot(format!(
                "the {subject} does not say which CDI folders it reads: containerd knows CDI from 1.7 on"
            ));
        };
        snapshot.cdi.check(|cdi| {
            if folders.contains(&cdi.real) || folders.contains(&cdi.path) {
                return Vec::new();
            }
            let read: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            vec![Finding::new(
                FindingKind::CdiFolderNotRead,
                subject.clone(),
                format!("it does not read {}, where the driver writes its CDI files", cdi.path.display()),
                format!(
                    "let the driver write to one of {}, or add the folder to `cdi_spec_dirs` of the runtime and restart that",
                    read.join(", ")
                ),
            )]
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::only;
    use crate::snapshot::{CdiFolder, Looked, Runtime};

    fn verdict(enable_cdi: Option<bool>, folders: Option<&[&str]>) -> Verdict {
        let cdi_folders = folders.map(|folders| folders.iter().map(Into::into).collect());
        check(&Snapshot {
            runtime: Looked::At(Runtime { endpoint: "/c.sock".into(), enable_cdi, cdi_folders }),
            cdi: Looked::At(CdiFolder { path: "/var/run/cdi".into(), real: "/run/cdi".into() }),
            ..Snapshot::default()
        })
    }

    #[test]
    fn a_runtime_that_reads_the_folder_is_healthy_by_either_of_its_names() {
        assert_eq!(verdict(Some(true), Some(&["/etc/cdi", "/var/run/cdi"])), Verdict::HEALTHY);
        assert_eq!(verdict(None, Some(&["/run/cdi"])), Verdict::HEALTHY);
    }

    #[test]
    fn a_runtime_without_cdi_or_with_other_folders_is_told() {
        assert!(only(&verdict(Some(false), Some(&["/var/run/cdi"]))).problem.contains("CDI is off"));
        assert!(
            only(&verdict(Some(true), Some(&["/etc/cdi"]))).problem.contains("does not read /var/run/cdi")
        );
        assert!(matches!(verdict(Some(true), None), Verdict::CouldNot(_)));
    }
}
