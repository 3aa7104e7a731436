//! The pages for people, probes and Prometheus: `/metrics`, `/healthz`, `/readyz`.

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use tonic::body::Body;

use super::{Operations, readiness::Readiness};

const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Metrics,
    Live,
    Ready,
    Unknown,
    WrongMethod,
}

/// Answers a request that is no call of gRPC.
pub(super) async fn answer(operations: &Operations, request: Request<Body>) -> Response<Body> {
    let page = page(request.method(), request.uri().path());
    // Nothing is expected in it.
    drop(request);
    match page {
        Page::Metrics => match operations.text() {
            Ok(metrics) => response(StatusCode::OK, OPEN_METRICS, metrics),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        Page::Live => match operations.probed.check().await {
            Ok(()) => text(StatusCode::OK, "live".to_owned()),
            Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        },
        Page::Ready => match &*operations.readiness.borrow() {
            Readiness::Ready => text(StatusCode::OK, "ready".to_owned()),
            Readiness::NotReady { reason } => text(StatusCode::SERVICE_UNAVAILABLE, reason.clone()),
        },
        Page::Unknown => {
            text(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz here".to_owned())
        }
        Page::WrongMethod => {
            text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered".to_owned())
        }
    }
}

fn page(method: &Method, path: &str) -> Page {
    match path {
        "/metrics" | "/healthz" | "/readyz" if ![Method::GET, Method::HEAD].contains(method) => {
            Page::WrongMethod
        }
        "/metrics" => Page::Metrics,
        "/healthz" => Page::Live,
        "/readyz" => Page::Ready,
        _ => Page::Unknown,
    }
}

fn text(status: StatusCode, line: String) -> Response<Body> {
    response(status, TEXT, line + "\n")
}

fn response(status: StatusCode, content_type: &'static str, content: String) -> Response<Body> {
    let mut response = Response::new(Body::new(content));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reading_the_three_pages_is_answered() {
        let table = [
            (Method::GET, "/metrics", Page::Metrics),
            (Method::HEAD, "/healthz", Page::Live),
            (Method::GET, "/readyz", Page::Ready),
            (Method::POST, "/readyz", Page::WrongMethod),
            (Method::GET, "/", Page::Unknown),
            (Method::GET, "/metrics/", Page::Unknown),
        ];
        for (method, path, expected) in table {
            assert_eq!(page(&method, path), expected, "{method} {path}");
        }
    }
}
