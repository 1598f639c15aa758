//! The name of the host that a request is for, and what RFC 9112 demands of a request before its body is read.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::header::{HOST, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::serve::refusal::Refusal;
use crate::serve::unread_body::refuse;

/// What the host of a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedHost {
    /// `localhost`, or an address.
    ThisMachine,
    /// Any other name, which may be that of another site.
    Other,
}

impl NamedHost {
    /// Reads `uri-host [ ":" port ]` as RFC 3986 has it. `None` if the text is anything else.
    pub(crate) fn read(host: &str) -> Option<NamedHost> {
        let (name, port) = match host.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                address.parse::<Ipv6Addr>().ok()?;
                ("localhost", port)
            }
            None => host.split_at(host.find(':').unwrap_or(host.len())),
        };
        let is_port = port.strip_prefix(':').unwrap_or(port).bytes().all(|it| it.is_ascii_digit());
        if !is_port || !(port.is_empty() || port.starts_with(':')) || !name.bytes().all(is_of_name)
        {
            return None;
        }
        let is_here = name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok();
        Some(if is_here { NamedHost::ThisMachine } else { NamedHost::Other })
    }
}

/// Whether a name of RFC 3986 may have the byte.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

/// Refuses what a server must or should refuse by RFC 9112, for all routes.
pub(crate) async fn check_request(mut request: Request, next: Next) -> Response {
    let checked = one_host(&mut request).and_then(|()| only_chunked(request.headers()));
    match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let (parts, body) = request.into_parts();
            refuse(&parts.headers, body, refusal).await.into_response()
        }
    }
}

/// Leaves one header `host`, with the host that the request is for.
fn one_host(request: &mut Request) -> Result<(), Refusal> {
    let refused = |text: &str| Err(Refusal::new(StatusCode::BAD_REQUEST, text));
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() < Version::HTTP_11 => {}
        (None, _) => return refused("the request needs the header host"),
        (Some(_), Some(_)) => return refused("the request has the header host more than once"),
        (Some(host), None) if host.to_str().ok().and_then(NamedHost::read).is_none() => {
            return refused("the header host must be a name or an address, and may have a port");
        }
        (Some(_), None) => {}
    }
    // The host of a whole URL goes before the header.
    let Some(authority) = request.uri().authority() else { return Ok(()) };
    match HeaderValue::from_str(authority.as_str()) {
        Ok(host) if NamedHost::read(authority.as_str()).is_some() => {
            request.headers_mut().insert(HOST, host);
            Ok(())
        }
        _ => refused("the host of the URL must be a name or an address, and may have a port"),
    }
}

/// Accepts no other coding of a body than `chunked`, which is decoded. A body that is not would be taken for the value.
fn only_chunked(headers: &HeaderMap) -> Result<(), Refusal> {
    let values = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let codings: Vec<_> = codings.map(<[u8]>::trim_ascii).filter(|it| !it.is_empty()).collect();
    match codings.iter().all(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
        false => {
            let text = "the header transfer-encoding must be chunked, or left out";
            Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, text))
        }
        true if codings.len() > 1 => {
            let text = "the header transfer-encoding has chunked more than once";
            Err(Refusal::new(StatusCode::BAD_REQUEST, text))
        }
        true => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_whole() {
        for host in ["localhost", "LocalHost:8080", "127.0.0.1", "10.0.0.5:", "[::1]", "[::1]:80"] {
            assert_eq!(NamedHost::read(host), Some(NamedHost::ThisMachine), "{host}");
        }
        for host in ["example.com", "localhost.example.com", "127.0.0.1.evil", "127.1", "", ":80"] {
            assert_eq!(NamedHost::read(host), Some(NamedHost::Other), "{host}");
        }
        for host in [
            "[::1].evil",
            "[::1]evil:80",
            "[::1",
            "::1",
            "[127.0.0.1]",
            "[localhost]",
            "a b",
            "evil@localhost",
            "localhost:80:80",
            "localhost:http",
            "localhost/x",
            "127.0.0.1]",
        ] {
            assert_eq!(NamedHost::read(host), None, "{host}");
        }
    }
}
