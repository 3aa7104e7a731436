//! Completes a prepare: what the driver has answered becomes files, a durable record, and the answer to the kubelet.

use std::path::Path;

use dra_resourceslice::DriverName;

use super::{Claims, Failure, cdi, file_id, metadata, record::Record, states::Phase};
use crate::{
    claim::AllocatedClaim,
    plugin::DriverPlugin,
    prepared::{Access, Prepared, PreparedDevice},
};

/// What is written first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Metadata, then the CDI file that shows it to containers, then the record: a record without its files is never
    /// found. What fails is rolled back.
    FilesFirst,
    /// The record, then the files: a container may be using the former files, which stay if the record cannot be written.
    /// Files that cannot be written are put right by the next prepare or start, as the record has them.
    RecordFirst,
}

impl<P: DriverPlugin> Claims<P> {
    /// Writes what the driver has answered for a claim. Gives the record, or with the error what an undo has to know.
    pub(super) async fn complete(
        &self,
        claim: &AllocatedClaim,
        mut record: Record,
        prepared: Prepared<P::State>,
        order: Order,
    ) -> Result<Record, (Failure, Record)> {
        let state = serde_json::to_value(&prepared.state);
        record.state = state.as_ref().ok().cloned();
        let completed = match state {
            Ok(_) => self.write_completed(claim.clone(), record.clone(), prepared.devices, order).await,
            Err(error) => Err(Failure::Internal(format!("the driver's state is no JSON: {error}"))),
        };
        completed.map_err(|error| (error, record))
    }

    async fn write_completed(
        &self,
        claim: AllocatedClaim,
        record: Record,
        devices: Vec<PreparedDevice>,
        order: Order,
    ) -> Result<Record, Failure> {
        let (kind, files) = (self.kind.clone(), self.disk.metadata.clone());
        let status = status_entries(&self.driver, &devices)?;
        let metadata = metadata::files(&self.driver, &claim, &devices)?;
        let host_path = |request: &str| files.path_of(claim.uid(), request);
        let mounts = metadata::mounts(&self.driver, &claim, &metadata, host_path)?;
        let _change = self.changes.read().await;
        let written = self.disk.run(move |store, cdi| {
            let (former, foreign) = (&record.former_cdi, record.foreign_cdi.as_deref());
            let answer = cdi::answer(&kind, &claim, resolved(devices), &mounts, former, foreign)?;
            let record = Record {
                completed: true,
                adopted: false,
                allocation: claim.allocation().clone(),
                answer: answer.devices,
                cdi: answer.cdi,
                metadata,
                status,
                ..record
            };
            let id = file_id(claim.uid())?;
            let write_files = || {
                files.ensure(claim.uid(), &record.metadata)?;
                if let Some(bytes) = &record.cdi
                    && !crate::fault::skips("cdi-write")
                {
                    cdi.ensure(&id, bytes.as_bytes())?;
                }
                Ok::<_, Failure>(())
            };
            match order {
                Order::FilesFirst => {
                    write_files()?;
                    store.write(&record)?;
                }
                Order::RecordFirst => {
                    store.write(&record)?;
                    write_files()?;
                }
            }
            Ok(record)
        });
        let record = written.await?;
        self.memory().set_phase(&record.claim.uid, Phase::Prepared);
        self.show_status(&record);
        Ok(record)
    }

    /// Has the claim's status say what the record does; nobody waits for it.
    pub(super) fn show_status(&self, record: &Record) {
        if let Some(status) = &record.status {
            self.status.set(&record.claim, status.clone());
        }
    }
}

/// The entries of `status.devices`, if the driver has anything to say there.
fn status_entries(
    driver: &DriverName,
    devices: &[PreparedDevice],
) -> Result<Option<serde_json::Value>, Failure> {
    let entry = |device: &PreparedDevice| {
        let status = device.status.clone()?;
        Some(status.entry(driver.as_str(), &device.device, device.share_id.as_deref()))
    };
    let entries: Vec<_> = devices.iter().filter_map(entry).collect();
    if entries.is_empty() {
        return Ok(None);
    }
    let value = serde_json::to_value(entries);
    value.map(Some).map_err(|error| Failure::Internal(format!("the devices' status is no JSON: {error}")))
}

/// Runtimes do not follow a link in the host path of a device node. Where this process cannot see the node, the driver
/// knows better. Blocks.
fn resolved(mut devices: Vec<PreparedDevice>) -> Vec<PreparedDevice> {
    for device in &mut devices {
        if let Access::Edits(edits) = &mut device.access
            && let Err(error) = dra_cdi::resolve_host_paths(edits, Path::new("/"))
        {
            tracing::debug!(device = %device.device, %error, "taking the host path as it is");
        }
    }
    devices
}
