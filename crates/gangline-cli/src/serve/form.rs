//! The form of a body, by its content type.

use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, StatusCode};

use crate::serve::refusal::Refusal;

/// What a body is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BodyForm {
    Json,
    /// Bytes of that type, as the header has it; `None` for `application/octet-stream`, which says nothing.
    Bytes(Option<String>),
    /// Parts between lines with that text.
    Multipart(String),
}

/// Types that a page in a browser may send to another site without asking it.
const OF_ANY_PAGE: [&str; 2] = ["text/plain", "multipart/form-data"];

/// The type of an HTML form without files. Programs such as `curl -d` send it for whatever they are given.
const URL_ENCODED: &str = "application/x-www-form-urlencoded";

/// Returns the form that the headers name. A page of another site must not use a server on its reader's machine: what a
/// browser sends without a CORS preflight is refused if it comes from such a page.
pub(crate) fn form(headers: &HeaderMap) -> Result<BodyForm, Refusal> {
    let unsupported = |text: String| Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    if headers.get_all(CONTENT_ENCODING).iter().any(|encoding| encoding != "identity") {
        return unsupported("bodies must not be compressed".to_owned());
    }
    let mut names = headers.get_all(CONTENT_TYPE).iter();
    let name = names.next().map(|name| String::from_utf8_lossy(name.as_bytes()));
    // A proxy may take the other one for the type.
    if names.next().is_some() {
        let text = "the request has several headers content-type";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
    }
    let name = name.as_deref().unwrap_or_default().trim();
    let essence = name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if OF_ANY_PAGE.contains(&&*essence) && is_of_another_site(headers) {
        let text = format!("a page of another site must not send {essence}");
        return Err(Refusal::new(StatusCode::FORBIDDEN, text));
    }
    match &*essence {
        "application/json" => Ok(BodyForm::Json),
        essence if essence.ends_with("+json") => Ok(BodyForm::Json),
        "application/octet-stream" => Ok(BodyForm::Bytes(None)),
        "multipart/form-data" => match parameter(name, "boundary") {
            Some(boundary) => Ok(BodyForm::Multipart(boundary)),
            None => {
                let text = "multipart/form-data needs a boundary of 1 to 70 characters";
                Err(Refusal::new(StatusCode::BAD_REQUEST, text))
            }
        },
        essence if essence != URL_ENCODED && is_type(essence) => {
            Ok(BodyForm::Bytes(Some(name.to_owned())))
        }
        essence => {
            let found = if essence.is_empty() { "none" } else { essence };
            unsupported(format!(
                "the content-type must be application/json, application/octet-stream, multipart/form-data or that of \
                 a file, such as image/png, and is {found}"
            ))
        }
    }
}

/// Whether a page of another site sends the request: browsers then name that site.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
    let host = headers.get(HOST).map(text).unwrap_or_default();
    headers.get_all(ORIGIN).iter().map(text).any(|origin| {
        !origin.split_once("://").is_some_and(|(_, site)| site.eq_ignore_ascii_case(&host))
    })
}

/// Whether a text is `type/subtype`.
fn is_type(text: &str) -> bool {
    let is_token = |text: &str| {
        let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !text.is_empty() && text.bytes().all(is_of_token)
    };
    text.split_once('/').is_some_and(|(kind, name)| is_token(kind) && is_token(name))
}

/// The value of a parameter of a content type, with or without quotes. A boundary has at most 70 characters.
fn parameter(content_type: &str, name: &str) -> Option<String> {
    let mut parameters = content_type.split(';').skip(1).filter_map(|it| it.split_once('='));
    let (_, value) = parameters.find(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
    let value = value.trim();
    let value = value.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(value);
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'"' || byte == b' ';
    let is_boundary = (1..=70).contains(&value.len()) && value.bytes().all(is_allowed);
    is_boundary.then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content_type: &str, origin: Option<&str>) -> Result<BodyForm, u16> {
        let mut headers = HeaderMap::from_iter([
            (CONTENT_TYPE, content_type.parse().unwrap()),
            (HOST, "localhost:8080".parse().unwrap()),
        ]);
        origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
        form(&headers).map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn what_is_not_json_is_bytes() {
        let bytes = |text: &str| Ok(BodyForm::Bytes(Some(text.to_owned())));
        for name in ["image/png", "audio/wav", "application/x-npy", "text/plain; charset=utf-8"] {
            assert_eq!(of(name, None), bytes(name));
        }
        assert_eq!(of("application/octet-stream", None), Ok(BodyForm::Bytes(None)));
        assert_eq!(of("application/ld+json", None), Ok(BodyForm::Json));
        for name in ["", "png", "image/", "/png", "image/p ng", URL_ENCODED] {
            assert_eq!(of(name, None), Err(415), "{name}");
        }
    }

    #[test]
    fn a_boundary_is_a_parameter() {
        let parts = |text: &str| Ok(BodyForm::Multipart(text.to_owned()));
        assert_eq!(of("multipart/form-data; boundary=ab", None), parts("ab"));
        assert_eq!(of("Multipart/Form-Data;charset=x; Boundary=\"a b\"", None), parts("a b"));
        for name in ["", "; boundary=", "; boundary=\"\""] {
            assert_eq!(of(&format!("multipart/form-data{name}"), None), Err(400), "{name}");
        }
    }

    #[test]
    fn a_page_of_another_site_sends_nothing_unasked() {
        for name in ["text/plain", "multipart/form-data; boundary=x"] {
            for site in ["http://evil.com", "null", "http://localhost:3000", "localhost:8080"] {
                assert_eq!(of(name, Some(site)), Err(403), "{name} {site}");
            }
            assert!(of(name, Some("http://localhost:8080")).is_ok(), "{name}");
        }
        assert_eq!(of("application/json", Some("https://model.example.com")), Ok(BodyForm::Json));
    }

    /// A second header of a name was overlooked.
    #[test]
    fn each_header_of_a_name_counts() {
        let of = |name: &'static str, lines: &[(_, &'static str)]| {
            let mut headers =
                HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(name))]);
            headers.insert(HOST, HeaderValue::from_static("localhost"));
            for (header, value) in lines {
                headers.append(header, HeaderValue::from_static(value));
            }
            form(&headers).map_err(|refusal| refusal.status.as_u16())
        };
        let coded = [(CONTENT_ENCODING, "identity"), (CONTENT_ENCODING, "gzip")];
        assert_eq!(of("application/json", &coded), Err(415));
        assert_eq!(of("application/json", &coded[..1]), Ok(BodyForm::Json));
        for other in ["text/plain", "application/json", ""] {
            assert_eq!(of("application/json", &[(CONTENT_TYPE, other)]), Err(400), "{other}");
        }
        let sites = [(ORIGIN, "http://localhost"), (ORIGIN, "http://evil.com")];
        assert_eq!(of("text/plain", &sites), Err(403));
        assert!(of("text/plain", &sites[..1]).is_ok());
    }
}
