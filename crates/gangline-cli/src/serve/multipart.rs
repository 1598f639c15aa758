//! A body in parts, as HTML forms and `curl -F` send files.

use axum::http::StatusCode;
use memchr::memmem::Finder;

use crate::serve::refusal::Refusal;

/// The only part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OnlyPart<'a> {
    pub(crate) bytes: &'a [u8],
    /// Its content type, if it has one.
    pub(crate) name: Option<String>,
}

const BROKEN: &str = "the body is not multipart/form-data with the boundary of its content-type";
const SEVERAL: &str =
    "a form must have one part, a file, which is the value: give further settings in JSON";
const NO_FILE: &str = "the part of the form has no file name, so it is no file: send a file (curl -F file=@cat.png), \
                       or the value as JSON";
const ENCODED: &str = "a part must be sent as it is, without content-transfer-encoding";

/// Returns the part of a body that has one. A second part would be dropped, so it is refused.
pub(crate) fn only_part<'a>(body: &'a [u8], boundary: &str) -> Result<OnlyPart<'a>, Refusal> {
    let refused = |text| Refusal::new(StatusCode::BAD_REQUEST, text);
    let line = format!("\r\n--{boundary}");
    let next = Finder::new(&line);
    // The first line may begin the body, without a line end before it.
    let rest = match body.strip_prefix(&line.as_bytes()[2..]) {
        Some(rest) => rest,
        None => next.find(body).map(|at| &body[at + line.len()..]).ok_or(refused(BROKEN))?,
    };
    if rest.starts_with(b"--") {
        return Err(refused(SEVERAL));
    }
    let part = after_line(rest).ok_or(refused(BROKEN))?;
    let end = next.find(part).ok_or(refused(BROKEN))?;
    match &part[end + line.len()..] {
        rest if rest.starts_with(b"--") => {}
        rest if after_line(rest).is_some() => return Err(refused(SEVERAL)),
        _ => return Err(refused(BROKEN)),
    }
    // A part without headers begins with the line end that ends them.
    let part = &part[..end];
    let (head, bytes) = match part.strip_prefix(b"\r\n") {
        Some(bytes) => (&[][..], bytes),
        None => Finder::new("\r\n\r\n")
            .find(part)
            .map(|at| (&part[..at], &part[at + 4..]))
            .ok_or(refused(BROKEN))?,
    };
    // The text of an input field has a name of its field only.
    if !header(head, "content-disposition").is_some_and(|it| is_of_file(&it)) {
        return Err(refused(NO_FILE));
    }
    let encoding = header(head, "content-transfer-encoding").map(|it| it.to_ascii_lowercase());
    if encoding.is_some_and(|it| !["binary", "8bit", "7bit"].contains(&&*it)) {
        return Err(refused(ENCODED));
    }
    Ok(OnlyPart { bytes, name: header(head, "content-type") })
}

/// What follows the rest of a line that has white space only.
fn after_line(rest: &[u8]) -> Option<&[u8]> {
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    rest[blank..].strip_prefix(b"\r\n")
}

/// The value of a header of a part.
fn header(head: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let mut headers = text.split("\r\n").filter_map(|line| line.split_once(':'));
    let (_, value) = headers.find(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
    Some(value.trim().to_owned())
}

/// Whether a content disposition has the name of a file. A browser sends an empty one if its user has chosen no file.
fn is_of_file(disposition: &str) -> bool {
    let (kind, mut rest) = disposition.split_once(';').unwrap_or((disposition, ""));
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return false;
    }
    while let Some((key, after)) = rest.split_once('=') {
        let (value, further) = value_and_rest(after.trim_start());
        let key = key.trim().to_ascii_lowercase();
        if ["filename", "filename*"].contains(&&*key) && !value.trim().is_empty() {
            return true;
        }
        rest = further;
    }
    false
}

/// Splits the value of a parameter, with or without quotes, from the parameters behind it.
fn value_and_rest(text: &str) -> (&str, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        return text.split_once(';').unwrap_or((text, ""));
    };
    let mut is_escaped = false;
    let end = quoted.find(|c| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    let (value, rest) = quoted.split_at(end.unwrap_or(quoted.len()));
    (value, rest.split_once(';').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, bytes: &str, name: Option<&str>) {
        let part = only_part(body.as_bytes(), "x").unwrap();
        assert_eq!((part.bytes, part.name.as_deref()), (bytes.as_bytes(), name));
    }

    #[test]
    fn a_file_is_its_bytes() {
        let head = "content-disposition: form-data; name=\"f\"; filename=\"a\"";
        check(
            &format!("--x\r\n{head}\r\nContent-Type: image/png\r\n\r\n\r\n--y\r\n\r\n--x--\r\n"),
            "\r\n--y\r\n",
            Some("image/png"),
        );
        check(&format!("preamble\r\n--x \r\n{head}\r\n\r\n1\r\n--x--"), "1", None);
        check(&format!("--x\r\n{head}\r\n\r\n\r\n--x--"), "", None);
    }

    #[test]
    fn a_file_has_a_name() {
        for (is_file, parameters) in [
            (true, "name=f; filename=a.png"),
            (true, "name=\"a; filename=\\\"x\"; FileName = \"b \\\" c.png\""),
            (true, "filename*=UTF-8''%e4.png"),
            (true, "name=\"f\"; filename=\"\"; filename*=UTF-8''a"),
            (false, "name=\"f\""),
            (false, "name=\"a; filename=b\""),
            (false, "name=\"a\\\"; filename=b\""),
            (false, "name=\"f\"; filename=\"\""),
            (false, "name=\"f\"; filename= "),
            (false, "name=\"f\"; filename"),
            (false, "name=filename"),
        ] {
            let body =
                format!("--x\r\ncontent-disposition: form-data; {parameters}\r\n\r\n1\r\n--x--");
            let text = only_part(body.as_bytes(), "x").map_err(|refusal| refusal.text);
            assert_eq!(
                text.map(|part| part.bytes),
                if is_file { Ok(&b"1"[..]) } else { Err(NO_FILE.to_owned()) },
                "{body}"
            );
        }
    }

    #[test]
    fn other_forms_are_refused() {
        let file = "content-disposition: form-data; filename=a\r\n";
        let part = format!("--x\r\n{file}\r\n1\r\n");
        for (body, text) in [
            (format!("{part}{part}--x--"), SEVERAL),
            ("--x--".to_owned(), SEVERAL),
            (String::new(), BROKEN),
            (part.clone(), BROKEN),
            (format!("{part}--x-"), BROKEN),
            (format!("{part}--xx--"), BROKEN),
            ("--x\r\nname: a\r\n--x--".to_owned(), BROKEN),
            (
                format!("--x\r\n{file}Content-Transfer-Encoding: base64\r\n\r\nAA==\r\n--x--"),
                ENCODED,
            ),
            ("--x\r\n\r\n1\r\n--x--".to_owned(), NO_FILE),
            ("--x\r\ncontent-type: image/png\r\n\r\n1\r\n--x--".to_owned(), NO_FILE),
            (part.replace("form-data", "attachment") + "--x--", NO_FILE),
        ] {
            let refusal = only_part(body.as_bytes(), "x").unwrap_err();
            assert_eq!((refusal.status.as_u16(), &*refusal.text), (400, text), "{body}");
        }
    }
}
