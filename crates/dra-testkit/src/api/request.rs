//! What a request asks for: parsed from method, path and query.

use std::time::Duration;

use http::Method;

use super::calls::Verb;
use super::kinds::{self, Kind, VERSION};
use super::status::ApiStatus;

/// A parsed request.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    pub(crate) kind: &'static Kind,
    pub(crate) verb: Verb,
    /// Namespace of the path; `None` for cluster-scoped kinds and for all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    /// Whether the path ends in `/status`.
    pub(crate) status: bool,
    pub(crate) query: Query,
}

/// The query parameters that the stand-in knows; others are ignored as the real server does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "one for each parameter")]
pub(crate) struct Query {
    pub(crate) watch: bool,
    pub(crate) resource_version: String,
    pub(crate) field_selector: String,
    pub(crate) label_selector: String,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) bookmarks: bool,
    pub(crate) initial_events: bool,
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    pub(crate) force: bool,
}

impl ApiRequest {
    /// Parses a request line.
    pub(crate) fn parse(method: &Method, path: &str, query: &str) -> Result<Self, ApiStatus> {
        let query = Query::parse(query)?;
        let target = Target::parse(path).ok_or_else(|| ApiStatus::no_such_path(path))?;
        let verb = match (method, target.name.is_some()) {
            (&Method::GET, true) if !query.watch => Verb::Get,
            (&Method::GET, _) if query.watch => Verb::Watch,
            (&Method::GET, _) => Verb::List,
            (&Method::POST, false) => Verb::Create,
            (&Method::PUT, true) => Verb::Update,
            (&Method::PATCH, true) => Verb::Patch,
            (&Method::DELETE, true) if !target.status => Verb::Delete,
            (&Method::DELETE, false) => Verb::DeleteCollection,
            _ => {
                let message = format!("{method} is not allowed on {path}");
                return Err(ApiStatus::new(405, "MethodNotAllowed", message));
            }
        };
        if verb == Verb::Create && target.kind.namespaced && target.namespace.is_none() {
            return Err(ApiStatus::bad_request(format!("{} need a namespace", target.kind.plural)));
        }
        let Target { kind, namespace, name, status } = target;
        Ok(Self { kind, verb, namespace, name, status, query })
    }
}

struct Target {
    kind: &'static Kind,
    namespace: Option<String>,
    name: Option<String>,
    status: bool,
}

impl Target {
    fn parse(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match segments.as_slice() {
            ["api", VERSION, rest @ ..] => ("", rest),
            ["apis", group, VERSION, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (plural, name, status) = match rest {
            [plural] => (plural, None, false),
            [plural, name] => (plural, Some(*name), false),
            [plural, name, "status"] => (plural, Some(*name), true),
            _ => return None,
        };
        let kind = kinds::by_plural(group, plural)?;
        let scope_fits =
            if kind.namespaced { namespace.is_some() || name.is_none() } else { namespace.is_none() };
        (scope_fits && (!status || kind.has_status())).then(|| Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            status,
        })
    }
}

impl Query {
    fn parse(text: &str) -> Result<Self, ApiStatus> {
        let mut query = Self::default();
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            match key.as_ref() {
                "watch" => query.watch = flag(&value),
                "resourceVersion" => query.resource_version = value.into_owned(),
                "fieldSelector" => query.field_selector = value.into_owned(),
                "labelSelector" => query.label_selector = value.into_owned(),
                "limit" => query.limit = number(&key, &value)?,
                "continue" => query.continue_token = value.into_owned(),
                "timeoutSeconds" => query.timeout = Some(Duration::from_secs(number(&key, &value)?)),
                "allowWatchBookmarks" => query.bookmarks = flag(&value),
                "sendInitialEvents" => query.initial_events = flag(&value),
                "dryRun" => query.dry_run = value == "All",
                "fieldManager" => query.field_manager = value.into_owned(),
                "force" => query.force = flag(&value),
                _ => {}
            }
        }
        Ok(query)
    }
}

fn flag(value: &str) -> bool {
    matches!(value, "true" | "1" | "")
}

fn number<N: std::str::FromStr>(key: &str, value: &str) -> Result<N, ApiStatus> {
    value.parse().map_err(|_| ApiStatus::bad_request(format!("{key} is no whole number: {value:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &Method, path: &str, query: &str) -> Result<ApiRequest, u16> {
        ApiRequest::parse(method, path, query).map_err(|status| status.code)
    }

    #[test]
    fn paths_and_methods_give_the_verb() {
        let slices = "/apis/resource.k8s.io/v1/resourceslices";
        let claims = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims";
        let table = [
            (Method::GET, slices.to_owned(), "", Verb::List),
            (Method::GET, slices.to_owned(), "watch=true", Verb::Watch),
            (Method::GET, format!("{slices}/a"), "", Verb::Get),
            (Method::POST, claims.to_owned(), "", Verb::Create),
            (Method::PUT, format!("{claims}/a/status"), "", Verb::Update),
            (Method::PATCH, format!("{claims}/a"), "", Verb::Patch),
            (Method::DELETE, format!("{claims}/a"), "", Verb::Delete),
            (Method::DELETE, slices.to_owned(), "", Verb::DeleteCollection),
            (Method::GET, "/apis/resource.k8s.io/v1/resourceclaims".into(), "", Verb::List),
            (Method::GET, "/api/v1/nodes/n".into(), "", Verb::Get),
        ];
        for (method, path, query, verb) in table {
            assert_eq!(parse(&method, &path, query).expect("served").verb, verb, "{method} {path}");
        }
    }

    #[test]
    fn what_is_not_served_is_not_found() {
        for path in [
            "/apis/resource.k8s.io/v1beta1/resourceslices",
            "/apis/apps/v1/deployments",
            "/api/v1/nodes/n/proxy",
            "/apis/resource.k8s.io/v1/resourceslices/a/status",
            "/apis/resource.k8s.io/v1/namespaces/ns/resourceslices",
            "/apis/resource.k8s.io/v1/resourceclaims/a",
            "/",
        ] {
            assert_eq!(parse(&Method::GET, path, "").expect_err("not served"), 404, "{path}");
        }
    }

    #[test]
    fn wrong_methods_and_numbers_are_refused() {
        assert_eq!(parse(&Method::PUT, "/api/v1/nodes", "").expect_err("no name"), 405);
        assert_eq!(parse(&Method::POST, "/api/v1/pods", "").expect_err("no namespace"), 400);
        assert_eq!(parse(&Method::GET, "/api/v1/pods", "limit=x").expect_err("no number"), 400);
    }

    #[test]
    fn the_query_is_decoded() {
        let query = Query::parse("fieldSelector=spec.driver%3Dgpu&limit=5&force=true&timeoutSeconds=9")
            .expect("valid");
        assert_eq!(query.field_selector, "spec.driver=gpu");
        assert_eq!((query.limit, query.force, query.timeout), (5, true, Some(Duration::from_secs(9))));
    }
}
