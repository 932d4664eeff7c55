//! SCAN: requests and pages.

use statestore_proto::message::{
    Page, PageEncoder, Refusal, Reply, RequestKind, RequestPayload, Response, Scan, WordCase,
};

use super::{check_neighbours, check_writer, naive};

/// Oracle: a naive parser accepts the same requests and the same pages with the same meaning.
/// Accepted ones can be encoded and decoded again.
///
/// Input: the payload of a SCAN, or of the reply with a page of keys.
pub fn scan(data: &[u8]) {
    for case in [WordCase::Any, WordCase::Upper] {
        let read = RequestPayload::decode_with(data, case).map_err(|error| {
            assert!(error.at <= data.len(), "{error} is outside of the payload");
            error.kind.refusal()
        });
        match request(data, case) {
            Some(expected) => assert_eq!(read, expected.map(RequestPayload::Scan), "{case:?}"),
            None => assert!(!matches!(read, Ok(RequestPayload::Scan(_))), "{case:?}"),
        }
    }
    if let Some(scan) = decode(data, WordCase::Any) {
        let written = scan.encode();
        check_writer(scan.encoded_len(), &written, |out| scan.encode_into(out));
        assert_eq!(decode(&written, WordCase::Upper), Some(scan));
        check_neighbours(&written, |bytes| decode(bytes, WordCase::Any).is_some());
        assert_eq!(scan.map(<[u8]>::to_vec).encode(), written);
    }

    let read = Page::decode(data);
    let expected = naive::page(data);
    assert_eq!(read.is_ok(), expected.is_some(), "{:?}", read.err());
    match (Response::decode(data, RequestKind::Scan), &expected) {
        (Ok(Response::Page(page)), Some(_)) => assert_eq!(Ok(page), read),
        (Ok(Response::Reply(Reply::Error(_))), None) => assert!(data.starts_with(b"-")),
        (Err(error), None) => assert!(error.at <= data.len()),
        (other, _) => panic!("{other:?}"),
    }
    let (Ok(page), Some((keys, token))) = (read, expected) else { return };
    assert!(page.keys().eq(keys.iter().copied()) && page.token() == token);
    assert_eq!((page.len(), page.is_empty()), (keys.len(), keys.is_empty()));
    let parts = PageEncoder { keys: &keys, token };
    let written = parts.encode();
    check_writer(parts.encoded_len(), &written, |out| parts.encode_into(out));
    let again = Page::decode(&written).expect("an encoded page");
    assert!(again.keys().eq(keys) && again.token() == token && written.len() <= data.len());
    check_neighbours(&written, |bytes| Page::decode(bytes).is_ok());
}

fn decode(data: &[u8], case: WordCase) -> Option<Scan<&[u8]>> {
    match RequestPayload::decode_with(data, case) {
        Ok(RequestPayload::Scan(scan)) => Some(scan),
        _ => None,
    }
}

/// The oracle: decodes a SCAN; returns `None` if the payload is not a SCAN.
fn request(data: &[u8], case: WordCase) -> Option<Result<Scan<&[u8]>, Refusal>> {
    let elements = naive::array(data)?;
    let verb = elements.first()?;
    if !(*verb == b"SCAN" || case == WordCase::Any && verb.eq_ignore_ascii_case(b"SCAN")) {
        return None;
    }
    Some(match elements[1..] {
        [pattern] => Ok(Scan { pattern, token: None }),
        [pattern, token] => Ok(Scan { pattern, token: Some(token) }),
        _ => Err(Refusal::WrongArity),
    })
}
