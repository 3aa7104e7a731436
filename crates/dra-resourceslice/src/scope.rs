//! Which slices of a cluster belong to one publisher.

use k8s_openapi::{
    api::{core::v1::Node, resource::v1::ResourceSlice},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::{DriverName, NodeName, PoolName, observed::ObservedSlice};

/// Which slices a publisher manages. It reads and writes no others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scope {
    driver: DriverName,
    kind: Kind,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Kind {
    Node(NodeName),
    Network,
    NetworkPool(PoolName),
}

impl Scope {
    /// The slices of a driver that belong to one node (`spec.nodeName`), for a driver that runs on that node.
    ///
    /// The kubelet deletes them whenever it starts, and 30 s after the driver's connection is lost.
    #[must_use]
    pub fn node(driver: DriverName, node: NodeName) -> Self {
        Self { driver, kind: Kind::Node(node) }
    }

    /// All slices of a driver that belong to no node, for a controller. Only one process may publish them at a
    /// time: use leader election.
    #[must_use]
    pub fn network(driver: DriverName) -> Self {
        Self { driver, kind: Kind::Network }
    }

    /// The slices of one pool of a driver that belong to no node, so that several controllers can have a pool each.
    #[must_use]
    pub fn network_pool(driver: DriverName, pool: PoolName) -> Self {
        Self { driver, kind: Kind::NetworkPool(pool) }
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &DriverName {
        &self.driver
    }

    /// The node, if the scope is that of a node.
    #[must_use]
    pub fn node_name(&self) -> Option<&NodeName> {
        match &self.kind {
            Kind::Node(node) => Some(node),
            Kind::Network | Kind::NetworkPool(_) => None,
        }
    }

    /// The pool, if the scope is that of one pool.
    #[must_use]
    pub fn pool_name(&self) -> Option<&PoolName> {
        match &self.kind {
            Kind::NetworkPool(pool) => Some(pool),
            Kind::Node(_) | Kind::Network => None,
        }
    }

    /// Whether a slice belongs to this scope.
    #[must_use]
    pub fn contains(&self, slice: &ResourceSlice) -> bool {
        self.is_of(&slice.spec.driver, slice.spec.node_name.as_deref(), &slice.spec.pool.name)
    }

    /// The same for a slice that was seen.
    pub(crate) fn contains_observed(&self, slice: &ObservedSlice) -> bool {
        self.is_of(&slice.driver, slice.node_name.as_deref(), &slice.pool)
    }

    fn is_of(&self, driver: &str, node: Option<&str>, pool: &str) -> bool {
        driver == self.driver.as_str()
            && node.filter(|node| !node.is_empty()) == self.node_name().map(NodeName::as_str)
            && self.pool_name().is_none_or(|only| pool == only.as_str())
    }

    /// The field selector for list and watch. API servers before 1.37 refuse `spec.pool.name` with 400.
    pub(crate) fn field_selector(&self, with_pool: bool) -> String {
        let node = self.node_name().map_or("", NodeName::as_str);
        let selector = format!("spec.driver={},spec.nodeName={node}", self.driver);
        match self.pool_name().filter(|_| with_pool) {
            Some(pool) => format!("{selector},spec.pool.name={pool}"),
            None => selector,
        }
    }

    /// The owner of the scope's slices: the node, by its UID, so that the slices go when the node goes.
    pub(crate) fn owner(&self, node_uid: &str) -> Option<OwnerReference> {
        use k8s_openapi::Resource as _;
        self.node_name().map(|node| OwnerReference {
            api_version: Node::API_VERSION.to_owned(),
            kind: Node::KIND.to_owned(),
            name: node.to_string(),
            uid: node_uid.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::resource::v1::{ResourcePool, ResourceSliceSpec};

    fn slice(driver: &str, node: Option<&str>, pool: &str) -> ResourceSlice {
        let spec = ResourceSliceSpec {
            driver: driver.into(),
            node_name: node.map(Into::into),
            pool: ResourcePool { name: pool.into(), ..Default::default() },
            ..Default::default()
        };
        ResourceSlice { spec, ..Default::default() }
    }

    #[test]
    fn each_scope_contains_only_its_own_slices() {
        let driver = DriverName::new("d").unwrap();
        let node = Scope::node(driver.clone(), NodeName::new("n").unwrap());
        let network = Scope::network(driver.clone());
        let pool = Scope::network_pool(driver, PoolName::new("p").unwrap());
        let table = [
            (slice("d", Some("n"), "p"), [true, false, false]),
            (slice("d", Some("m"), "p"), [false, false, false]),
            (slice("e", Some("n"), "p"), [false, false, false]),
            (slice("d", None, "p"), [false, true, true]),
            (slice("d", None, "q"), [false, true, false]),
            (slice("e", None, "p"), [false, false, false]),
        ];
        for (slice, expected) in table {
            let got = [node.contains(&slice), network.contains(&slice), pool.contains(&slice)];
            assert_eq!(got, expected, "{:?}", slice.spec);
        }
    }

    #[test]
    fn selectors_name_driver_node_and_pool() {
        let driver = DriverName::new("d").unwrap();
        let node = Scope::node(driver.clone(), NodeName::new("n").unwrap());
        assert_eq!(node.field_selector(true), "spec.driver=d,spec.nodeName=n");
        let pool = Scope::network_pool(driver, PoolName::new("p").unwrap());
        assert_eq!(pool.field_selector(true), "spec.driver=d,spec.nodeName=,spec.pool.name=p");
        assert_eq!(pool.field_selector(false), "spec.driver=d,spec.nodeName=");
    }
}
