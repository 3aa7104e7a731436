//! Which of Kubernetes' declarations an expression is checked against.

/// What the API server knows when it checks an expression: its feature gates.
///
/// New expressions are checked with the gates of the API server. Those that are stored already, and all that the
/// scheduler evaluates, are checked as if all gates were on; that is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Environment {
    pub(crate) consumable_capacity: bool,
    pub(crate) list_attributes: bool,
}

impl Environment {
    /// For stored expressions, as the scheduler evaluates them.
    #[must_use]
    pub const fn stored() -> Self {
        Self { consumable_capacity: true, list_attributes: true }
    }

    /// For a new expression, with both gates off.
    #[must_use]
    pub const fn new_expression() -> Self {
        Self { consumable_capacity: false, list_attributes: false }
    }

    /// With or without the gate `DRAConsumableCapacity` (Kubernetes 1.34), which knows
    /// `device.allowMultipleAllocations`.
    #[must_use]
    pub const fn consumable_capacity(self, on: bool) -> Self {
        Self { consumable_capacity: on, ..self }
    }

    /// With or without the gate `DRAListTypeAttributes` (Kubernetes 1.36), which knows `includes` and lets macros such
    /// as `exists` go over an attribute.
    #[must_use]
    pub const fn list_attributes(self, on: bool) -> Self {
        Self { list_attributes: on, ..self }
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self::stored()
    }
}
