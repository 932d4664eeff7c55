//! Pages of SCAN, parsed from their bytes.

use crate::request::header;

/// Keys of a page, and the token for the next page.
pub(crate) struct Page {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) token: Option<Vec<u8>>,
}

/// Parses a page; returns `None` if a deployed client could not parse it.
pub(crate) fn page(payload: &[u8]) -> Option<Page> {
    let mut rest = payload;
    let outer = number(&mut rest, b'*')?;
    let count = number(&mut rest, b'*')?;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(blob(&mut rest)?);
    }
    let token = match outer {
        1 => None,
        2 => Some(blob(&mut rest)?),
        _ => return None,
    };
    rest.is_empty().then_some(Page { keys, token })
}

fn number(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let (_, number, tail) = header(rest, kind)?;
    *rest = tail;
    Some(number)
}

fn blob(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = number(rest, b'$')?;
    let (text, tail) = (rest.get(..len)?, rest.get(len..)?);
    *rest = tail.strip_prefix(b"\r\n")?;
    Some(text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::page;
    use crate::vectors::Vectors;

    #[test]
    fn page_parses_the_valid_vectors_and_refuses_the_others() {
        let read = |file: &str| Vectors::read(file).expect("a file");
        read("pages.txt").run(5, |row| {
            let page = page(&row.bytes("payload")?).ok_or("not read")?;
            let keys = row.optional_bytes("keys")?.unwrap_or_default();
            let keys: Vec<&[u8]> =
                keys.split(|byte| *byte == b' ').filter(|key| !key.is_empty()).collect();
            let token = row.optional_bytes("token")?;
            (page.keys == keys && page.token == token).then_some(()).ok_or_else(|| "differs".into())
        });
        read("pages-refused.txt").run(5, |row| match page(&row.bytes("payload")?) {
            Some(_) => Err("read".into()),
            None => Ok(()),
        });
    }
}
