//! The drivers that are compared.

/// A driver, or a way to run one. The order is that of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Variant {
    /// `mock-gpu-driver`, on the SDK.
    Ours,
    /// On the Go helper, with client-go's limit of requests and the CDI library's watcher, as its example runs.
    GoDefault,
    /// The same without the limit.
    GoUnlimited,
    /// Without the watcher too.
    GoFair,
    /// The same, with as durable writes as ours.
    GoFairDurable,
    /// No driver: a bare program that does our GETs, writes and syncs.
    Floor,
}

impl Variant {
    /// The drivers, without the floor.
    pub(crate) const DRIVERS: [Self; 5] =
        [Self::Ours, Self::GoDefault, Self::GoUnlimited, Self::GoFair, Self::GoFairDurable];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::GoDefault => "Go, client defaults",
            Self::GoUnlimited => "Go, limiter off",
            Self::GoFair => "fair Go",
            Self::GoFairDurable => "fair Go, durable",
            Self::Floor => "floor",
        }
    }

    /// Whether it is the driver on the SDK.
    pub(crate) fn is_ours(self) -> bool {
        self == Self::Ours
    }

    /// Its own arguments.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            // The Go driver has none.
            Self::Ours => &["--describe-devices=false"],
            Self::GoDefault | Self::Floor => &[],
            Self::GoUnlimited => &["--qps=5000", "--burst=5000"],
            Self::GoFair => &["--qps=5000", "--burst=5000", "--cdi-watch=false"],
            Self::GoFairDurable => &["--qps=5000", "--burst=5000", "--cdi-watch=false", "--durable"],
        }
    }
}
