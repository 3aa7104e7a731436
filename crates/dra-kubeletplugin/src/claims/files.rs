//! The files of a claim beside its record: CDI file and metadata.

use super::{Claims, Failure, file_id, record::Record};
use crate::{names::ClaimUid, plugin::DriverPlugin};

impl<P: DriverPlugin> Claims<P> {
    /// Puts a prepared claim's files back if they are not as recorded. They were durable before the record was, and if what
    /// put them back since was not, no power cut can show it: the boot after it is another, whose claims begin again.
    pub(super) async fn restore_files(&self, record: Record) -> Result<(), Failure> {
        let Some(bytes) = record.cdi else { return Ok(()) };
        let (uid, files) = (record.claim.uid, self.disk.metadata.clone());
        let id = file_id(&uid)?;
        let restored = self.disk.run(move |_, cdi| {
            files.ensure(&uid, &record.metadata)?;
            cdi.restore(&id, bytes.as_bytes())?;
            Ok(())
        });
        restored.await
    }

    /// Removes the files of a claim without a record.
    pub(super) async fn remove_files(&self, uid: ClaimUid) -> Result<(), Failure> {
        tracing::info!(claim = %uid, "removing the files of a claim without a record");
        let (id, metadata) = (file_id(&uid)?, self.disk.metadata.clone());
        let removed = self.disk.run(move |_, cdi| {
            cdi.remove(&id)?;
            Ok(metadata.remove(&uid)?)
        });
        removed.await
    }
}
