//! Listing keys: requests and pages.

use statestore_proto::message::{Page, PageParts, Scan, ScanReply, WordCase};
use statestore_tests::vectors::unescape;

use super::vectors;
use crate::support::{Writers, check_edges, same};

#[test]
fn requests_mean_what_the_file_says() {
    vectors("scans.txt").run(10, |case| {
        let (payload, form) = (case.bytes("payload")?, case.text("form")?);
        let (pattern, token) = (case.bytes("pattern")?, case.optional_bytes("token")?);
        let expected = Scan { pattern: pattern.as_slice(), token: token.as_deref() };
        same("decode", &Scan::decode(&payload, WordCase::Any), &Ok(expected))?;
        let upper = Scan::decode(&payload, WordCase::Upper).is_ok();
        same("upper case only", &upper, &(form != "any-case"))?;
        check_edges(&payload, |edge| Scan::decode(edge, WordCase::Any).is_ok(), |_| false)?;
        let encode = expected.encode();
        same("canonical", &(encode == payload), &(form == "canonical"))?;
        let encode_into = |out: &mut [u8]| expected.encode_into(out);
        let len = expected.encoded_len();
        Writers { encoded_len: len, encode: encode.clone(), encode_into }.check(&encode)
    });
}

#[test]
fn refused_requests_get_the_text_of_the_file() {
    vectors("scans-refused.txt").run(10, |case| {
        let payload = case.bytes("payload")?;
        let found = Scan::decode(&payload, WordCase::Any);
        let found = found.map_err(|error| error.kind.refusal().text());
        same("decode", &found, &Err(case.text("text")?))
    });
}

#[test]
fn pages_mean_what_the_file_says() {
    vectors("pages.txt").run(9, |case| {
        let payload = case.bytes("payload")?;
        let token = case.optional_bytes("token")?;
        let keys = case.text("keys")?.split(' ').filter(|key| *key != "\\e");
        let keys: Option<Vec<Vec<u8>>> = keys.map(unescape).collect();
        let keys = keys.ok_or("malformed escape in keys")?;
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let page = Page::decode(&payload).map_err(|error| error.to_string())?;
        same("keys", &page.keys().collect(), &keys)?;
        same("how many", &(page.len(), page.is_empty()), &(keys.len(), keys.is_empty()))?;
        same("token", &page.token(), &token.as_deref())?;
        same("reply", &ScanReply::decode(&payload), &Ok(ScanReply::Page(page)))?;
        check_edges(&payload, |edge| Page::decode(edge).is_ok(), |_| false)?;
        let parts = PageParts { keys: &keys, token: token.as_deref() };
        let encode = parts.encode();
        same("canonical", &(encode == payload), &(case.text("form")? == "canonical"))?;
        let encode_into = |out: &mut [u8]| parts.encode_into(out);
        let len = parts.encoded_len();
        Writers { encoded_len: len, encode: encode.clone(), encode_into }.check(&encode)
    });
}

#[test]
fn what_is_no_page_is_refused() {
    vectors("pages-refused.txt").run(16, |case| {
        let payload = case.bytes("payload")?;
        same("page", &Page::decode(&payload).is_ok(), &false)?;
        same("reply", &ScanReply::decode(&payload).is_ok(), &false)
    });
}
