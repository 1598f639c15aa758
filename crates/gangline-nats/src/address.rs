//! The address of a broker, which may have a password or a token in it.

use std::fmt;
use std::io;

use async_nats::ServerAddr;
use gangline::BoxError;
use percent_encoding::percent_decode_str;

/// The schemes of an address. Without one, it is the first.
const SCHEMES: [&str; 2] = ["nats://", "tls://"];

/// The address of a broker as it was given: one server or several, separated by commas.
///
/// It has no `Display`, so that no text has its password or token by accident.
#[derive(Clone)]
pub(super) struct BrokerAddress(String);

/// The servers of an address, and the user or the token.
pub(super) struct ParsedAddress {
    pub(super) servers: Vec<BrokerServer>,
    /// The first in the address: the client uses it for all servers.
    pub(super) login: Option<Login>,
}

/// One server of an address.
pub(super) struct BrokerServer {
    /// Has neither a user nor a token: the client logs it.
    pub(super) address: ServerAddr,
    pub(super) has_login: bool,
}

/// What shows a broker that it knows a client.
pub(super) enum Login {
    User { name: String, password: String },
    Token(String),
}

impl BrokerAddress {
    pub(super) fn new(text: impl Into<String>) -> Self {
        BrokerAddress(text.into())
    }

    /// The whole text, for the environment of a process that connects.
    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// What may be shown: nothing before the last `@`, and behind it the hosts and ports alone, also of an address that
    /// cannot be parsed.
    pub(super) fn shown(&self) -> String {
        let (before, servers) = self.0.rsplit_once('@').unwrap_or(("", &self.0));
        let before = before.to_ascii_lowercase();
        let places = SCHEMES.iter().filter_map(|scheme| Some((before.rfind(scheme)?, *scheme)));
        let scheme = places.max().map_or("", |it| it.1);
        let shown: Vec<_> = servers.split(',').map(shown_server).collect();
        format!("{scheme}{}", shown.join(","))
    }

    /// Reads the address.
    ///
    /// # Errors
    ///
    /// If it is none. The text of the error has nothing of the address.
    pub(super) fn parse(&self) -> Result<ParsedAddress, BoxError> {
        let mut login = None;
        let servers = self.0.split(',').map(|server| {
            let (server, own) = parse_server(server.trim())?;
            let has_login = own.is_some();
            login = login.take().or(own);
            Ok(BrokerServer { address: server, has_login })
        });
        let servers = servers.collect::<Result<_, String>>().map_err(|mut text| {
            if self.0.contains('@') {
                text += "; in a user, a password or a token, write % as %25, # as %23, / as %2F, ? as %3F, and a comma \
                         as %2C";
            }
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(ParsedAddress { servers, login })
    }
}

/// Hides what may be a password or a token.
impl fmt::Debug for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.shown(), f)
    }
}

/// The scheme of the address of a server, the host, and the port if it is one.
fn shown_server(server: &str) -> String {
    let (scheme, server) = split_scheme(server.trim()).unwrap_or(("", server.trim()));
    let is_of_name = |it: char| it.is_ascii_alphanumeric() || "-._".contains(it);
    let is_of_number = |it: char| it.is_ascii_hexdigit() || "[:.%".contains(it);
    let end = match server.starts_with('[') {
        true => server.find(|it| !is_of_number(it)).filter(|&end| server[end..].starts_with(']')),
        false => Some(server.find(|it| !is_of_name(it)).unwrap_or(server.len())),
    };
    let end = end.map_or(0, |end| end + usize::from(server[end..].starts_with(']')));
    let (host, rest) = server.split_at(end);
    let port = rest.strip_prefix(':').map(|it| it.split(['/', '?', '#']).next().unwrap_or(it));
    match port.and_then(|port| port.parse::<u16>().ok()) {
        Some(port) => format!("{scheme}{host}:{port}"),
        None => format!("{scheme}{host}"),
    }
}

/// The known scheme of the address of a server, in small letters, and what follows it.
fn split_scheme(server: &str) -> Option<(&'static str, &str)> {
    SCHEMES.iter().find_map(|&scheme| {
        let (start, rest) = server.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some((scheme, rest))
    })
}

fn parse_server(server: &str) -> Result<(ServerAddr, Option<Login>), String> {
    let (scheme, rest) = match split_scheme(server) {
        Some(split) => split,
        None if server.contains("://") => return Err("its scheme is not nats:// or tls://".into()),
        None => (SCHEMES[0], server),
    };
    let parsed = format!("{scheme}{rest}").parse::<ServerAddr>();
    let mut url = parsed.map_err(|error| error.to_string())?.into_inner();
    if url.host_str().is_none_or(str::is_empty) {
        return Err("it has no host".to_owned());
    }
    // Such as the rest of a password: the host is another one then.
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("something follows the host and the port".to_owned());
    }
    let login = match (url.username(), url.password()) {
        ("", None) => None,
        (token, None) => Some(Login::Token(decoded(token)?)),
        (name, Some(password)) => {
            Some(Login::User { name: decoded(name)?, password: decoded(password)? })
        }
    };
    if login.is_some() {
        let removed = url.set_username("").and_then(|()| url.set_password(None));
        removed.map_err(|()| "it has no host".to_owned())?;
    }
    let server = ServerAddr::from_url(url).map_err(|error| error.to_string())?;
    Ok((server, login))
}

/// A user, a password or a token whose percent signs stand for other characters.
fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| "its user, password or token is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let address = BrokerAddress::new(text);
        assert_eq!(format!("{address:?}"), format!("{:?}", address.shown()));
        address.shown()
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        assert_eq!(shown("nats://host:4222"), "nats://host:4222");
        assert_eq!(shown("a:4222, TLS://b"), "a:4222,tls://b");
        assert_eq!(shown("user:secret@host"), "host");
        assert_eq!(shown("NATS://secret@[::1]:4222"), "nats://[::1]:4222");
        assert_eq!(shown("tls://a:secret@host:4222,nats://b"), "tls://host:4222,nats://b");
        assert_eq!(shown("tls://a:secret@host:4222,nats://token@b"), "nats://b");
        assert_eq!(shown("tls://a:se@cr,et@host"), "tls://host");
        assert_eq!(shown("nats://u:1,secret@host"), "nats://host");
        assert_eq!(shown("nats:u:secret@host"), "host");
    }

    #[test]
    fn an_address_that_cannot_be_parsed_is_shown_without_its_password() {
        for text in [
            "nats://u:secret#x@host:4222",
            "nats://u:12#secret@host:4222",
            "nats://u:se/cret@host",
            "nats://u:secret?x@host",
            "nats://u:secret@host:99999",
            "nats://u:secret@host:port",
            "nats://u:secret@",
            "nats://u:secret@:4222",
            "nats://secret@[::1",
            "http://u:secret@host",
            "secret://x@host",
            "nats://u:%FFsecret@host",
            "nats://u:secret@host?secret",
            "nats://u:secret@host/secret",
            "nats://u:secret@host secret",
            "nats://u:secret@h:4222, tls://v:secret#x@i",
            "nats://u:secret",
            "u:secret#x",
        ] {
            let address = BrokerAddress::new(text);
            let error = address.parse().err().unwrap_or_else(|| panic!("{text} is an address"));
            let said = format!("{} {address:?} {error} {error:?}", address.shown());
            assert!(!said.contains("secret"), "{text}: {said}");
        }
    }

    #[test]
    fn what_a_user_has_encoded_is_decoded() {
        for (text, host, login) in [
            ("nats://u%40x:p%23%2f%3F%25@host:4222", "host", "u@x p#/?%"),
            ("NATS://t%2Cn@[::1]:4222", "::1", "t,n"),
            ("u:p@ss@host", "host", "u p@ss"),
            ("tls://t@host", "host", "t"),
            (" nats://host/ ", "host", ""),
            ("nats://a,nats://u:p@b,nats://v:q@c", "a", "u p"),
        ] {
            let parsed = BrokerAddress::new(text).parse().unwrap();
            let first = &parsed.servers[0].address;
            assert_eq!(first.host(), host, "{text}");
            // The client logs them.
            let logged = parsed.servers.iter().map(|it| format!("{:?}", it.address));
            assert!(logged.clone().all(|it| !it.contains('@')), "{:?}", logged.collect::<Vec<_>>());
            let found = match parsed.login {
                Some(Login::User { name, password }) => format!("{name} {password}"),
                Some(Login::Token(token)) => token,
                None => String::new(),
            };
            assert_eq!(found, login, "{text}");
        }
    }
}
