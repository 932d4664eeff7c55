//! The parser. Only this file uses nom: its errors are converted to [`RespError`], and no signature
//! contains its types.

use nom::bytes::complete::{tag, take, take_till};
use nom::character::complete::{char, u64 as digits};
use nom::error::{ErrorKind, ParseError};
use nom::{Err, IResult, Parser};

use super::{Blobs, Frame, RespError, RespErrorKind};

/// Length of the shortest blob string, `$0\r\n\r\n`, and so of an array element.
const BLOB_LEN_MIN: usize = 6;

/// Length of the shortest array, `*0\r\n`.
const ARRAY_LEN_MIN: usize = 4;

const CRLF_LEN: usize = 2;

/// Decodes a whole payload as a flat array of blob strings and returns the first `MAX` elements.
///
/// Further elements are checked and counted, to distinguish an array that is too long from a
/// malformed one.
///
/// # Errors
/// [`RespError`] if the payload is not exactly one such array.
///
/// ```
/// use statestore_proto::resp::{decode_array, RespErrorKind};
///
/// let blobs = decode_array::<4>(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")?;
/// assert_eq!(blobs.as_slice(), [b"GET".as_slice(), b"k"]);
/// let error = decode_array::<4>(b"*4294967295\r\n").unwrap_err();
/// assert_eq!(error.kind, RespErrorKind::Overrun);
/// # Ok::<(), statestore_proto::resp::RespError>(())
/// ```
#[inline]
pub fn decode_array<const MAX: usize>(payload: &[u8]) -> Result<Blobs<'_, MAX>, RespError> {
    let mut kept = [[].as_slice(); MAX];
    let total = read_array(payload, &mut kept)?;
    Ok(Blobs { kept, total })
}

/// The same as [`decode_array`], with the elements in a slice of the caller, which saves a move.
/// Returns the number of elements.
#[inline]
pub(crate) fn read_array<'a>(payload: &'a [u8], kept: &mut [&'a [u8]]) -> Result<usize, RespError> {
    whole(payload, |input| array(input, kept))
}

/// Positions of the parts of a page of keys in its payload: offsets of the start and the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageLayout {
    /// The encoded elements of the inner array, for [`Elements`].
    pub(crate) keys: (usize, usize),
    /// Number of elements of the inner array.
    pub(crate) total: usize,
    /// The content of the blob string after the inner array.
    pub(crate) token: Option<(usize, usize)>,
}

/// Decodes a whole payload as an array of an array of blob strings and an optional blob string.
pub(crate) fn read_page(payload: &[u8]) -> Result<PageLayout, RespError> {
    whole(payload, |input| {
        let (count, _) = char('*').parse(input)?;
        let (inner, outer) = length_line(count, ARRAY_LEN_MIN)?;
        if !matches!(outer, 1 | 2) {
            return fault(RespErrorKind::UnexpectedByte, count);
        }
        let (count, _) = char('*').parse(inner)?;
        let (start, _) = length_line(count, BLOB_LEN_MIN)?;
        let (end, total) = array(inner, &mut [])?;
        let (rest, token) = match outer {
            2 => {
                let (rest, token) = blob(end)?;
                let token_end = input.len() - rest.len() - CRLF_LEN;
                (rest, Some((token_end - token.len(), token_end)))
            }
            _ => (end, None),
        };
        let keys = (input.len() - start.len(), input.len() - end.len());
        Ok((rest, PageLayout { keys, total, token }))
    })
}

/// An iterator over consecutive blob strings, up to the first other byte.
#[derive(Clone)]
pub(crate) struct Elements<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (rest, element) = blob(self.0).ok()?;
        self.0 = rest;
        Some(element)
    }
}

/// Decodes a whole payload as one reply frame.
///
/// # Errors
/// [`RespError`] if the payload is not exactly one frame.
///
/// ```
/// use statestore_proto::resp::{decode_frame, Frame};
///
/// assert_eq!(decode_frame(b"$4\r\n1234\r\n")?, Frame::Blob(b"1234".as_slice()));
/// assert_eq!(decode_frame(b"-ERR syntax error\r\n")?, Frame::Error(b"syntax error".as_slice()));
/// # Ok::<(), statestore_proto::resp::RespError>(())
/// ```
#[inline]
pub fn decode_frame(payload: &[u8]) -> Result<Frame<&[u8]>, RespError> {
    whole(payload, frame)
}

/// An error in the form that nom requires: its kind and the rest of the input.
struct Fault<'a> {
    kind: RespErrorKind,
    rest: &'a [u8],
}

type Parsed<'a, T> = IResult<&'a [u8], T, Fault<'a>>;

impl<'a> ParseError<&'a [u8]> for Fault<'a> {
    fn from_error_kind(rest: &'a [u8], _: ErrorKind) -> Self {
        let kind = if rest.is_empty() {
            RespErrorKind::UnexpectedEnd
        } else {
            RespErrorKind::UnexpectedByte
        };
        Self { kind, rest }
    }

    fn append(_: &'a [u8], _: ErrorKind, first: Self) -> Self {
        first
    }
}

fn fault<'a, T>(kind: RespErrorKind, rest: &'a [u8]) -> Parsed<'a, T> {
    Err(Err::Error(Fault { kind, rest }))
}

/// Runs `parser` over the whole payload; a rest is [`RespErrorKind::Trailing`].
#[inline]
fn whole<'a, T>(
    payload: &'a [u8],
    parser: impl FnOnce(&'a [u8]) -> Parsed<'a, T>,
) -> Result<T, RespError> {
    let (kind, rest) = match parser(payload) {
        Ok(([], value)) => return Ok(value),
        Ok((rest, _)) => (RespErrorKind::Trailing, rest),
        Err(Err::Error(fault) | Err::Failure(fault)) => (fault.kind, fault.rest),
        Err(Err::Incomplete(_)) => (RespErrorKind::UnexpectedEnd, [].as_slice()),
    };
    Err(RespError { kind, at: payload.len() - rest.len() })
}

/// Counts all elements and stores as many as fit in `kept`.
#[inline]
fn array<'a>(input: &'a [u8], kept: &mut [&'a [u8]]) -> Parsed<'a, usize> {
    let (digits, _) = char('*').parse(input)?;
    let (mut rest, total) = length_line(digits, BLOB_LEN_MIN)?;
    for index in 0..total {
        let (after, blob) = blob(rest)?;
        if let Some(slot) = kept.get_mut(index) {
            *slot = blob;
        }
        rest = after;
    }
    Ok((rest, total))
}

#[inline]
fn blob(input: &[u8]) -> Parsed<'_, &[u8]> {
    let (digits, _) = char('$').parse(input)?;
    let (content, len) = length_line(digits, 1)?;
    let (end, blob) = take(len).parse(content)?;
    let (rest, ()) = crlf(end)?;
    Ok((rest, blob))
}

/// A count of items of at least `unit` bytes each; an error if they exceed the rest of the input.
#[inline]
fn length_line(input: &[u8], unit: usize) -> Parsed<'_, usize> {
    let (end, number) = decimal(input)?;
    let (rest, ()) = crlf(end)?;
    match usize::try_from(number) {
        Ok(len) if len <= rest.len() / unit => Ok((rest, len)),
        _ => fault(RespErrorKind::Overrun, input),
    }
}

#[inline]
fn decimal(input: &[u8]) -> Parsed<'_, u64> {
    match (digits.parse(input), input) {
        (Err(_), [b'0'..=b'9', ..]) => fault(RespErrorKind::Overflow, input),
        (parsed, _) => parsed,
    }
}

/// The number that `text` consists of: at least one decimal digit, at most 64 bits.
#[inline]
pub(crate) fn whole_decimal(text: &[u8]) -> Option<u64> {
    match decimal(text) {
        Ok(([], number)) => Some(number),
        _ => None,
    }
}

#[inline]
fn crlf(input: &[u8]) -> Parsed<'_, ()> {
    match input {
        [b'\r', b'\n', rest @ ..] => Ok((rest, ())),
        [] => fault(RespErrorKind::UnexpectedEnd, input),
        [b'\r'] => fault(RespErrorKind::UnexpectedEnd, &[]),
        [b'\r', rest @ ..] => fault(RespErrorKind::UnexpectedByte, rest),
        _ => fault(RespErrorKind::UnexpectedByte, input),
    }
}

#[inline]
fn frame(input: &[u8]) -> Parsed<'_, Frame<&[u8]>> {
    match input {
        [b'$', b'-', rest @ ..] => {
            let (end, _) = tag(b"1".as_slice()).parse(rest)?;
            crlf.map(|()| Frame::Null).parse(end)
        }
        [b'$', ..] => blob.map(Frame::Blob).parse(input),
        [b'+', rest @ ..] => {
            let (end, text) = line(rest)?;
            crlf.map(|()| Frame::Simple(text)).parse(end)
        }
        [b':', b'-', rest @ ..] => integer(rest, i64::checked_sub_unsigned),
        [b':', rest @ ..] => integer(rest, i64::checked_add_unsigned),
        [b'-', b'1', rest @ ..] => crlf.map(|()| Frame::Integer(-1)).parse(rest),
        [b'-', rest @ ..] => error(rest),
        [] => fault(RespErrorKind::UnexpectedEnd, input),
        _ => fault(RespErrorKind::UnexpectedByte, input),
    }
}

fn integer(
    input: &[u8],
    from_zero: impl FnOnce(i64, u64) -> Option<i64>,
) -> Parsed<'_, Frame<&[u8]>> {
    let (end, magnitude) = decimal(input)?;
    let Some(number) = from_zero(0, magnitude) else {
        return fault(RespErrorKind::Overflow, input);
    };
    crlf.map(|()| Frame::Integer(number)).parse(end)
}

/// `ERR`, an optional colon, a space, the text, and an optional CRLF at the end of the input.
fn error(input: &[u8]) -> Parsed<'_, Frame<&[u8]>> {
    let (after, _) = code(input)?;
    let (end, text) = match after.strip_prefix(b":").unwrap_or(after) {
        [b' ', text @ ..] => line(text)?,
        bare => (bare, [].as_slice()),
    };
    if end.is_empty() {
        return Ok((end, Frame::Error(text)));
    }
    crlf.map(|()| Frame::Error(text)).parse(end)
}

fn code(input: &[u8]) -> Parsed<'_, &[u8]> {
    match tag::<_, _, Fault<'_>>(b"ERR".as_slice()).parse(input) {
        Err(_) if b"ERR".starts_with(input) => fault(RespErrorKind::UnexpectedEnd, &[]),
        other => other,
    }
}

/// The input before the first CR or LF.
fn line(input: &[u8]) -> Parsed<'_, &[u8]> {
    take_till(|byte| byte == b'\r' || byte == b'\n').parse(input)
}
