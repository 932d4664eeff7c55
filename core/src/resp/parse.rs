//! The parser. nom stays behind this file: its errors become [`RespError`] and its types reach no signature.

use nom::bytes::complete::{tag, take, take_till};
use nom::character::complete::{char, u64 as digits};
use nom::error::{ErrorKind, ParseError};
use nom::{Err, IResult, Parser};

use super::{Blobs, Frame, RespError, RespErrorKind};

/// Bytes of the shortest blob string, `$0\r\n\r\n`: what one array element needs at least.
const BLOB_LEN_MIN: usize = 6;

/// Bytes of the shortest array, `*0\r\n`.
const ARRAY_LEN_MIN: usize = 4;

/// Reads a whole payload as a flat array of blob strings, keeping the first `MAX` elements.
///
/// Elements past `MAX` are checked and counted, so that an array that is too long is not mistaken for one that is
/// malformed.
///
/// # Errors
/// [`RespError`] when the payload is anything else than exactly one such array.
///
/// ```
/// use statestore_proto::resp::{decode_array, RespErrorKind};
///
/// let blobs = decode_array::<4>(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")?;
/// assert_eq!(blobs.as_slice(), [b"GET".as_slice(), b"k"]);
/// assert_eq!(decode_array::<4>(b"*4294967295\r\n").unwrap_err().kind, RespErrorKind::Overrun);
/// # Ok::<(), statestore_proto::resp::RespError>(())
/// ```
#[inline]
pub fn decode_array<const MAX: usize>(payload: &[u8]) -> Result<Blobs<'_, MAX>, RespError> {
    let mut kept = [[].as_slice(); MAX];
    let total = read_array(payload, &mut kept)?;
    Ok(Blobs { kept, total })
}

/// [`decode_array`] for callers that would have to move the elements: they are left in `kept`. Returns their total.
#[inline]
pub(crate) fn read_array<'a>(payload: &'a [u8], kept: &mut [&'a [u8]]) -> Result<usize, RespError> {
    whole(payload, |input| array(input, kept))
}

/// The parts of a page of keys.
pub(crate) struct RawPage<'a> {
    /// The encoded elements of the inner array, for [`elements`].
    pub(crate) keys: &'a [u8],
    /// How many they are.
    pub(crate) total: usize,
    /// What follows the inner array.
    pub(crate) token: Option<&'a [u8]>,
}

/// Reads a whole payload as an array of an array of blob strings and, maybe, a blob string.
pub(crate) fn read_page(payload: &[u8]) -> Result<RawPage<'_>, RespError> {
    whole(payload, |input| {
        let (count, _) = char('*').parse(input)?;
        let (inner, outer) = length_line(count, ARRAY_LEN_MIN)?;
        if !matches!(outer, 1 | 2) {
            return fault(RespErrorKind::UnexpectedByte, count);
        }
        let (count, _) = char('*').parse(inner)?;
        let (keys, _) = length_line(count, BLOB_LEN_MIN)?;
        let (rest, total) = array(inner, &mut [])?;
        let keys = keys.get(..keys.len() - rest.len()).unwrap_or_default();
        let (rest, token) = match outer {
            2 => blob.map(Some).parse(rest)?,
            _ => (rest, None),
        };
        Ok((rest, RawPage { keys, total, token }))
    })
}

/// The blob strings that follow each other in `input`, up to the first that is none.
pub(crate) fn elements(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let (rest, element) = blob(input).ok()?;
        input = rest;
        Some(element)
    })
}

/// Reads a whole payload as one reply frame.
///
/// # Errors
/// [`RespError`] when the payload is anything else than exactly one frame.
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

/// nom's view of an error: what is wrong and what was left of the input when it was found.
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

/// Runs `parser` over the whole payload and turns a rest into [`RespErrorKind::Trailing`].
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

/// Counts all elements and keeps as many as `kept` has room for.
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

/// A count of things that take at least `unit` bytes each, refused at once when the rest cannot hold them.
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

/// The number that is all of `text`: decimal digits within 64 bits, at least one.
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

/// `ERR`, a colon at most, a blank, the text; the final CRLF may be missing.
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

/// Everything before the first CR or LF.
fn line(input: &[u8]) -> Parsed<'_, &[u8]> {
    take_till(|byte| byte == b'\r' || byte == b'\n').parse(input)
}
