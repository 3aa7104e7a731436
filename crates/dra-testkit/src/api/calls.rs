//! The log of requests, and the matcher that picks some of them.

/// What a request does, in the words of access control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the API's own")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

/// One request that a client made.
///
/// `status` tells a write to `…/status` from one to the object itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// What it did.
    pub verb: Verb,
    /// Plural name of the kind, for example `resourceslices`.
    pub resource: String,
    /// Namespace, for namespaced kinds.
    pub namespace: Option<String>,
    /// Name of the object; for a create the name in the body, or `None` with `generateName`.
    pub name: Option<String>,
    /// Whether it went to the `status` subresource.
    pub status: bool,
    /// Field selector of a list, watch or delete-collection.
    pub field_selector: String,
    /// Field manager that the client named.
    pub field_manager: String,
    /// Whether it was to change nothing (`dryRun=All`).
    pub dry_run: bool,
    /// HTTP code of the answer; `None` while there is none, or when the connection was cut.
    pub answer: Option<u16>,
}

/// Picks requests, by default all of them.
///
/// ```
/// use dra_testkit::api::{Matcher, Verb};
/// let slice_writes = Matcher::any().verbs([Verb::Create, Verb::Update]).resource("resourceslices");
/// # let _ = slice_writes;
/// ```
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    verbs: Vec<Verb>,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    status: Option<bool>,
    dry_run: Option<bool>,
}

impl Matcher {
    /// Every request.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Only this verb.
    #[must_use]
    pub fn verb(self, verb: Verb) -> Self {
        self.verbs([verb])
    }

    /// Only these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: impl IntoIterator<Item = Verb>) -> Self {
        self.verbs = verbs.into_iter().collect();
        self
    }

    /// Only this kind, by its plural name.
    #[must_use]
    pub fn resource(mut self, plural: impl Into<String>) -> Self {
        self.resource = Some(plural.into());
        self
    }

    /// Only this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only objects of this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only requests to the `status` subresource, or only others.
    #[must_use]
    pub fn status(mut self, status: bool) -> Self {
        self.status = Some(status);
        self
    }

    /// Only dry runs, or only others.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = Some(dry_run);
        self
    }

    /// Whether a call is picked.
    #[must_use]
    pub fn matches(&self, call: &Call) -> bool {
        (self.verbs.is_empty() || self.verbs.contains(&call.verb))
            && self.resource.as_ref().is_none_or(|wanted| *wanted == call.resource)
            && self.namespace.as_ref().is_none_or(|wanted| Some(wanted) == call.namespace.as_ref())
            && self.name.as_ref().is_none_or(|wanted| Some(wanted) == call.name.as_ref())
            && self.status.is_none_or(|wanted| wanted == call.status)
            && self.dry_run.is_none_or(|wanted| wanted == call.dry_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: Verb, resource: &str, name: Option<&str>) -> Call {
        Call {
            verb,
            resource: resource.into(),
            namespace: None,
            name: name.map(str::to_owned),
            status: false,
            field_selector: String::new(),
            field_manager: String::new(),
            dry_run: false,
            answer: None,
        }
    }

    #[test]
    fn each_condition_narrows_the_choice() {
        let create = call(Verb::Create, "resourceslices", Some("a"));
        assert!(Matcher::any().matches(&create));
        assert!(Matcher::any().verb(Verb::Create).resource("resourceslices").name("a").matches(&create));
        assert!(!Matcher::any().verb(Verb::Update).matches(&create));
        assert!(!Matcher::any().resource("pods").matches(&create));
        assert!(!Matcher::any().name("b").matches(&create));
        assert!(!Matcher::any().namespace("default").matches(&create));
        assert!(!Matcher::any().status(true).matches(&create));
        assert!(!Matcher::any().dry_run(true).matches(&create));
    }
}
