//! Service accounts: their tokens and their rights.

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api, Resource,
    api::{DeleteParams, ObjectMeta, PostParams},
};

use crate::context::Context;

/// The role that deployments bind to a driver's service account.
pub(crate) const DRIVER_ROLE: &str = "dra-driver";

/// A service account, in the scenario's namespace if it is not told otherwise.
pub(crate) struct Account<'a> {
    cx: &'a Context,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Account<'a> {
    /// Makes it; it has no rights yet.
    pub(crate) async fn create(cx: &'a Context, name: &'a str) -> Result<Self> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        cx.api::<ServiceAccount>().create(&PostParams::default(), &account).await?;
        Ok(Self::existing(cx, &cx.namespace, name))
    }

    /// One that somebody else has made.
    pub(crate) fn existing(cx: &'a Context, namespace: &'a str, name: &'a str) -> Self {
        Self { cx, namespace, name }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.name
    }

    /// A token that holds as long as this object of the account's namespace does: a secret, or a pod with this account.
    /// That of a pod names the pod's node, too.
    pub(crate) async fn token_with<K: Resource<DynamicType = ()>>(&self, object: &K) -> Result<String> {
        let bound = BoundObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: object.meta().name.clone(),
            uid: object.meta().uid.clone(),
        };
        let spec = TokenRequestSpec { bound_object_ref: Some(bound), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cx.client.clone(), self.namespace);
        let answer: TokenRequest = accounts
            .create_subresource("token", self.name, &PostParams::default(), &request)
            .await
            .context("asking for a token")?;
        answer.status.and_then(|status| status.token).context("no token")
    }

    /// Gives the account the rights of a `ClusterRole`. The binding belongs to no namespace and has to be removed.
    pub(crate) async fn bind(&self, role: &str) -> Result<Binding> {
        let name = format!("{}-{}-{role}", self.cx.namespace, self.name);
        let (namespace, account) = (self.namespace, self.name);
        let yaml = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}\n\
             subjects: [{{kind: ServiceAccount, name: {account}, namespace: {namespace}}}]\n"
        );
        self.cx.apply(&yaml).await?;
        Ok(Binding { bindings: Api::all(self.cx.client.clone()), name })
    }
}

/// Rights of an account.
pub(crate) struct Binding {
    bindings: Api<ClusterRoleBinding>,
    name: String,
}

impl Binding {
    /// Takes them away again.
    pub(crate) async fn remove(self) -> Result<()> {
        self.bindings.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}
