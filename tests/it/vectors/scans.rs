//! SCAN: requests and pages of keys.

use statestore_proto::message::{
    Page, PageEncoder, RequestKind, RequestPayload, Response, Scan, WordCase,
};
use statestore_testkit::vectors::unescape;

use super::vectors;
use crate::support::{Writers, check_edges, same};

#[test]
fn requests_are_decoded_and_encoded_as_in_the_file() {
    vectors("scans.txt").run(10, |case| {
        let (payload, form) = (case.bytes("payload")?, case.text("form")?);
        let (pattern, token) = (case.bytes("pattern")?, case.optional_bytes("token")?);
        let expected = Scan { pattern: pattern.as_slice(), token: token.as_deref() };
        same("decode", &RequestPayload::decode(&payload), &Ok(RequestPayload::Scan(expected)))?;
        let upper = RequestPayload::decode_with(&payload, WordCase::Upper).is_ok();
        same("upper case only", &upper, &(form != "any-case"))?;
        check_edges(&payload, |edge| RequestPayload::decode(edge).is_ok(), |_| false)?;
        let encode = expected.encode();
        same("canonical", &(encode == payload), &(form == "canonical"))?;
        let encode_into = |out: &mut [u8]| expected.encode_into(out);
        let len = expected.encoded_len();
        Writers { encoded_len: len, encode: encode.clone(), encode_into }.check(&encode)
    });
}

#[test]
fn invalid_requests_have_the_error_in_the_file() {
    vectors("scans-refused.txt").run(10, |case| {
        let payload = case.bytes("payload")?;
        let found = RequestPayload::decode(&payload);
        let found = found.map_err(|error| error.kind.refusal().text());
        same("decode", &found, &Err(case.text("text")?))
    });
}

#[test]
fn pages_are_decoded_and_encoded_as_in_the_file() {
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
        let response = Response::decode(&payload, RequestKind::Scan);
        same("response", &response, &Ok(Response::Page(page)))?;
        check_edges(&payload, |edge| Page::decode(edge).is_ok(), |_| false)?;
        let parts = PageEncoder { keys: &keys, token: token.as_deref() };
        let encode = parts.encode();
        same("canonical", &(encode == payload), &(case.text("form")? == "canonical"))?;
        let encode_into = |out: &mut [u8]| parts.encode_into(out);
        let len = parts.encoded_len();
        Writers { encoded_len: len, encode: encode.clone(), encode_into }.check(&encode)
    });
}

#[test]
fn invalid_pages_are_rejected() {
    vectors("pages-refused.txt").run(16, |case| {
        let payload = case.bytes("payload")?;
        same("page", &Page::decode(&payload).is_ok(), &false)?;
        same("response", &Response::decode(&payload, RequestKind::Scan).is_ok(), &false)
    });
}
