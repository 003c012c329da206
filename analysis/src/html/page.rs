//! The page as markup: a frame with sections that the script fills, the data, and a policy that
//! allows this script and this style and nothing else.

use larder_base::svg::escape;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Found;
use super::document::document;
use super::timeline;
use crate::advise::FindingText;
use crate::reading::Analysis;

const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// A site or frame below this share of every figure is folded into the others.
const SHARE: f64 = 0.001;
/// The size limit of the data; beyond it, more is folded.
const DATA_BYTES: usize = 1_800_000;

pub fn render(analysis: &Analysis, found: &Found, trace: &str, findings: &[FindingText]) -> String {
    let mut share = SHARE;
    let data = loop {
        let data = embedded(&document(analysis, found, trace, findings, share));
        if data.len() <= DATA_BYTES || share >= 1.0 {
            break data;
        }
        share *= 2.0;
    };
    let found = found
        .0
        .timeline
        .timeline
        .as_ref()
        .filter(|found| found.peak_bytes > 0);
    let drawing = found.map_or_else(
        || "<p class=\"soft\">No block was live at any time.</p>".to_owned(),
        |found| {
            let of = match analysis.images.len() {
                0 | 1 => String::new(),
                _ => format!(
                    "<p class=\"soft\">Of process {}, the image with the highest peak.</p>",
                    found.pid
                ),
            };
            of + &timeline::draw(found, trace)
        },
    );
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
         <title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n\
         <noscript>This page needs its own script, which is inside it.</noscript>\n\
         <section id=\"head\"></section>\n\
         <section id=\"findings\" hidden><h2>Findings</h2></section>\n\
         <section id=\"counters\"><h2>Counters</h2></section>\n\
         <section id=\"timeline\"><h2>Live bytes over time</h2>\n{drawing}</section>\n\
         <section id=\"sites\"><h2>Sites</h2></section>\n\
         <section id=\"copies\" hidden><h2>Copies</h2></section>\n\
         <section id=\"syscalls\" hidden><h2>System calls</h2></section>\n\
         <section id=\"cpu\" hidden><h2>Processor time</h2></section>\n\
         <section id=\"flame\"><h2>Flame graph</h2></section>\n\
         <section id=\"sizes\"><h2>Sizes</h2></section>\n\
         <section id=\"processes\" hidden><h2>Process images</h2></section>\n\
         </main>\n<script type=\"application/json\" id=\"data\">{data}</script>\n\
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
