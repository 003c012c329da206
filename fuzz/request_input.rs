//! What the parser of HTTP requests is asked to do with hostile bytes: by the fuzzer, and by the
//! tests with seeded mutations.
#![allow(dead_code, reason = "the server uses the rest")]

#[path = "../live/src/serve/http.rs"]
mod http;

/// Parses these bytes as they might arrive and checks what must hold of any answer.
pub fn read(bytes: &[u8]) {
    let answer = http::parse(bytes);
    if let Ok(Some(request)) = &answer {
        assert!(request.path.starts_with('/'), "{request:?}");
        let is_printable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        assert!(is_printable(&request.path), "{request:?}");
        assert!(request.value("seconds").is_none_or(is_printable));
        let body = request.posted.as_deref().unwrap_or_default();
        assert!(bytes.ends_with(body), "{request:?}");
        let _ = request.token();
    }
    // A client may send it in two parts: what is complete, or refused, is so at once or with more.
    for first in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        match http::parse(&bytes[..first]) {
            Ok(None) => {}
            Ok(Some(_)) => assert!(answer.is_ok() || answer == REFUSED_FOR_MORE, "{answer:?}"),
            Err(_) => assert!(!matches!(answer, Ok(Some(_))), "{answer:?}"),
        }
    }
}

/// What follows a complete request.
const REFUSED_FOR_MORE: Result<Option<http::Request>, http::Refusal> =
    Err(http::Refusal(400, "one request a connection"));
