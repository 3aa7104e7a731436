//! Asks the API server what the driver's account may do.

use std::convert::Infallible;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use crate::snapshot::Access;

/// Whose rights are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Account {
    /// Those that this program has itself.
    Own,
    /// Those of a user, such as `system:serviceaccount:NAMESPACE:NAME`.
    User(String),
}

impl std::str::FromStr for Account {
    type Err = Infallible;

    /// `self`, a user's name, or `NAMESPACE/NAME` of a service account.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once('/') {
            None if text == "self" => Self::Own,
            Some((namespace, name)) if !text.contains(':') => {
                Self::User(format!("system:serviceaccount:{namespace}:{name}"))
            }
            _ => Self::User(text.to_owned()),
        })
    }
}

const DRA: &str = "resource.k8s.io";
const SLICES: &str = "to publish its devices";
const STATUS: &str = "to write the status of claims";

/// Verb, API group, resource, what for.
const ALWAYS: [(&str, &str, &str, &str); 9] = [
    ("get", DRA, "resourceclaims", "to prepare claims"),
    ("get", DRA, "resourceslices", SLICES),
    ("list", DRA, "resourceslices", SLICES),
    ("watch", DRA, "resourceslices", SLICES),
    ("create", DRA, "resourceslices", SLICES),
    ("update", DRA, "resourceslices", SLICES),
    ("patch", DRA, "resourceslices", SLICES),
    ("delete", DRA, "resourceslices", SLICES),
    ("get", "", "nodes", "to make its slices go with the node"),
];

/// Kubernetes 1.36 and later ask for the second one.
const FOR_STATUS: [(&str, &str, &str, &str); 2] = [
    ("patch", DRA, "resourceclaims/status", STATUS),
    ("associated-node:patch", DRA, "resourceclaims/driver", STATUS),
];

/// # Errors
/// If the API server does not say.
pub(super) async fn look(
    client: &Client,
    account: &Account,
    writes_status: bool,
) -> Result<Vec<Access>, kube::Error> {
    let for_status = if writes_status { &FOR_STATUS[..] } else { &[] };
    let mut answers = Vec::new();
    for (verb, group, resource, needed_for) in ALWAYS.iter().chain(for_status) {
        answers.push(Access {
            account: match account {
                Account::Own => "this account".into(),
                Account::User(name) => name.clone(),
            },
            verb: (*verb).to_owned(),
            group: (*group).to_owned(),
            resource: (*resource).to_owned(),
            needed_for: (*needed_for).to_owned(),
            is_allowed: ask(client, account, attributes(verb, group, resource)).await?,
        });
    }
    Ok(answers)
}

async fn ask(
    client: &Client,
    account: &Account,
    attributes: ResourceAttributes,
) -> Result<bool, kube::Error> {
    let parameters = PostParams::default();
    let resource_attributes = Some(attributes);
    let status = match account {
        Account::Own => {
            let spec =
                SelfSubjectAccessReviewSpec { resource_attributes, ..SelfSubjectAccessReviewSpec::default() };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            Api::all(client.clone()).create(&parameters, &review).await?.status
        }
        Account::User(name) => {
            let spec = SubjectAccessReviewSpec {
                resource_attributes,
                user: Some(name.clone()),
                groups: Some(groups_of(name)),
                ..SubjectAccessReviewSpec::default()
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            Api::all(client.clone()).create(&parameters, &review).await?.status
        }
    };
    Ok(status.is_some_and(|status| status.allowed))
}

fn attributes(verb: &str, group: &str, resource: &str) -> ResourceAttributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: Some(subresource.to_owned()).filter(|name| !name.is_empty()),
        ..ResourceAttributes::default()
    }
}

/// The groups that a user is in by its name: roles may be bound to those.
fn groups_of(user: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) =
        user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
    {
        groups.push("system:serviceaccounts".into());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_named_in_three_ways() {
        let user = |name: &str| Account::User(name.into());
        for (text, account) in [
            ("self", Account::Own),
            ("ns/driver", user("system:serviceaccount:ns:driver")),
            ("system:serviceaccount:ns:driver", user("system:serviceaccount:ns:driver")),
            ("driver", user("driver")),
        ] {
            assert_eq!(text.parse(), Ok(account), "{text}");
        }
        assert_eq!(groups_of("system:serviceaccount:ns:d").len(), 3);
        assert_eq!(groups_of("driver").len(), 1);
    }
}
