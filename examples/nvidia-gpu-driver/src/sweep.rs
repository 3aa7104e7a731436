//! Partitions that are made as claims ask for them: which are claims', and what becomes of those that are not.

use crate::{
    hardware::{Hardware, HardwareError},
    made::Made,
    partition,
    records::Records,
    state::Partition,
};

/// What is known of them.
#[derive(Clone, Debug)]
pub(crate) struct DynamicMig {
    made: Made,
    records: Records,
    /// Those that this driver has made, that no claim has, and that cannot be removed yet.
    lost: Vec<Partition>,
}

impl DynamicMig {
    pub(crate) fn new(made: Made, records: Records) -> Self {
        Self { made, records, lost: Vec::new() }
    }

    /// Whether a partition that is there is one of a claim: this driver has made it, and it is not lost.
    pub(crate) fn is_claimed(&self, partition: &Partition) -> bool {
        self.made.has(partition) && !self.lost.contains(partition)
    }

    /// Removes partitions that this driver has made and no claim has any more, because its record is lost. Of those that
    /// this driver has not made nothing is known, so they stay.
    pub(crate) async fn sweep(&mut self, hardware: &Hardware) {
        if !self.made.take_doubt() {
            return;
        }
        let outcome = self.remove_unclaimed(hardware).await;
        if outcome.as_ref().map_or(true, |lost| !lost.is_empty()) {
            self.made.doubt();
        }
        match outcome {
            Ok(lost) => self.lost = lost,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::info!(
                    error,
                    "what a lost record may have left of partitions cannot be looked for yet"
                );
            }
        }
    }

    /// Gives those that cannot be removed now.
    async fn remove_unclaimed(&self, hardware: &Hardware) -> anyhow::Result<Vec<Partition>> {
        // First which were made, then what claims have: a claim's record is there before its partition is, and longer.
        let mut unclaimed = self.made.all()?;
        if unclaimed.is_empty() {
            return Ok(unclaimed);
        }
        let held = self.records.held_devices().await?;
        unclaimed.retain(|partition| !held.contains(&partition.device));
        let (made, known) = (self.made.clone(), self.lost.clone());
        let removing = hardware.run(move |library| {
            unclaimed.retain(|partition| {
                let removed = partition::remove(library, partition, &made);
                if removed.is_ok() || !known.contains(partition) {
                    let error = removed.as_ref().err().map(|error| format!("{error:#}"));
                    tracing::warn!(
                        partition.device,
                        error,
                        "removing a partition that no claim has any more"
                    );
                }
                removed.is_err()
            });
            Ok::<_, HardwareError>(unclaimed)
        });
        Ok(removing.await?)
    }
}
