//! The page as markup: the data, the script that shows it, and a policy that allows this script and this style
//! and nothing else.

use larder_base::svg::escape;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::document::Page;
use super::gathered::Gathered;
use super::timeline;
use crate::advise::FindingText;
use crate::reading::Analysis;

/// One script, of one scope.
const SCRIPT: &str = concat!(
    include_str!("page/model.js"),
    include_str!("page/sites.js"),
    include_str!("page/chosen.js"),
    include_str!("page/flame.js"),
    include_str!("page/timeline.js"),
    include_str!("page/page.js"),
);
const STYLE: &str = include_str!("page/page.css");

/// A site or frame below this share of every figure is folded into the others.
const SHARE: f64 = 0.001;
/// The size limit of the data; beyond it, more is folded.
const DATA_BYTES: usize = 1_800_000;

pub fn render(
    analysis: &mut Analysis,
    gathered: &Gathered,
    trace: &str,
    findings: &[FindingText],
) -> String {
    let page = Page::new(analysis, gathered, trace, findings, SHARE);
    let mut share = SHARE;
    let data = loop {
        let data = embedded(&page.data(share));
        if data.len() <= DATA_BYTES || share >= 1.0 {
            break data;
        }
        share *= 2.0;
    };
    let style = format!("{STYLE}{}", timeline::STYLE);
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(&style)
    );
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         <svg id=\"pictures\" hidden></svg>\n\
         <noscript>This page needs its own script, which is inside it.</noscript>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        escape(trace)
    )
}

/// JSON in which no tag or comment can begin or end.
fn embedded(document: &Value) -> String {
    document
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

/// In a policy's form: SHA-256 in base 64.
fn hash(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha256::digest(text.as_bytes());
    let mut out = String::new();
    for three in digest.chunks(3) {
        let bits = three
            .iter()
            .fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for place in 0..4 {
            match place <= three.len() {
                true => out.push(char::from(DIGITS[(bits >> (18 - 6 * place)) as usize & 63])),
                false => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_as_a_browser_computes_it() {
        // `printf abc | openssl dgst -sha256 -binary | base64`
        assert_eq!(hash("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    }

    #[test]
    fn data_cannot_end_its_element() {
        let document = serde_json::json!({ "name": "</script><script>alert(1)</script><!--" });
        let text = embedded(&document);
        assert!(!text.contains('<') && !text.contains('>'), "{text}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, document);
    }
}
