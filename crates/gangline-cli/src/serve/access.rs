//! Decides which callers may use the server.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderMap, HeaderValue, StatusCode};

use crate::error::{CliError, Context};
use crate::exit;
use crate::serve::host::NamedHost;
use crate::serve::refusal::Refusal;

/// What a request needs to be accepted.
#[derive(Debug)]
pub(crate) enum AccessRule {
    /// The header `authorization` has this token.
    Token(Vec<u8>),
    /// The header `host` names this machine. This prevents DNS rebinding: if the name of another site resolves to this
    /// machine, a browser takes a page of that site and the server for one origin.
    ThisMachine,
    /// Every request is accepted.
    All,
}

impl AccessRule {
    pub(crate) fn new(token: Option<&Path>, listen: SocketAddr) -> Result<AccessRule, CliError> {
        match token {
            Some(path) => read(path).map(AccessRule::Token),
            None if listen.ip().is_loopback() => Ok(AccessRule::ThisMachine),
            None => Ok(AccessRule::All),
        }
    }

    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match self {
            AccessRule::All => Ok(()),
            AccessRule::ThisMachine => match headers.get(HOST).is_none_or(is_here) {
                true => Ok(()),
                false => Err(Refusal::new(StatusCode::FORBIDDEN, OTHER_HOST)),
            },
            AccessRule::Token(token) => {
                let given = headers.get(AUTHORIZATION).map(|given| given.as_bytes());
                match given.and_then(bearer).is_some_and(|given| are_equal(given, token)) {
                    true => Ok(()),
                    false => Err(Refusal::new(StatusCode::UNAUTHORIZED, NO_TOKEN)),
                }
            }
        }
    }
}

const NO_TOKEN: &str =
    "the request needs the header authorization: Bearer TOKEN, with the token of the server";
const OTHER_HOST: &str = "without a token, the server answers requests to localhost and to addresses: use --token, or \
                          let the proxy set the header host to the address of the server";

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let failed = |error| {
        let what = format!("the token cannot be read from {}", path.display());
        CliError::new(exit::USAGE, Context::new(what, error))
    };
    let token = fs::read(path).map_err(failed)?.trim_ascii().to_vec();
    let is_word = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    if is_word {
        Ok(token)
    } else {
        let text = format!("{} must have one word in ASCII, the token", path.display());
        Err(CliError::new(exit::USAGE, text))
    }
}

fn bearer(given: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = given.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token.trim_ascii())
}

/// Compares in a time that does not depend on where two texts of the same length differ.
fn are_equal(given: &[u8], token: &[u8]) -> bool {
    let differences =
        given.iter().zip(token).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
    given.len() == token.len() && differences == 0
}

fn is_here(host: &HeaderValue) -> bool {
    host.to_str().ok().and_then(NamedHost::read) == Some(NamedHost::ThisMachine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: axum::http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn a_token_is_compared_whole() {
        let access = AccessRule::Token(b"secret".to_vec());
        let is_ok = |value: &str| access.check(&with(AUTHORIZATION, value)).is_ok();
        assert!(is_ok("Bearer secret") && is_ok("bearer  secret"));
        for wrong in
            ["Bearer secre", "Bearer secrets", "Bearer", "secret", "Basic secret", "Bearer "]
        {
            assert!(!is_ok(wrong), "{wrong}");
        }
        assert!(access.check(&HeaderMap::new()).is_err());
    }

    #[test]
    fn without_a_token_the_name_of_another_site_is_refused() {
        let is_ok = |value: &str| AccessRule::ThisMachine.check(&with(HOST, value)).is_ok();
        assert!(
            is_ok("localhost:8080")
                && is_ok("127.0.0.1")
                && is_ok("[::1]:80")
                && is_ok("LOCALHOST")
        );
        assert!(!is_ok("example.com") && !is_ok("[::1].evil") && !is_ok("a b"));
        assert!(AccessRule::ThisMachine.check(&HeaderMap::new()).is_ok());
    }
}
