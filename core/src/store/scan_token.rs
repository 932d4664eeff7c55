//! SCAN tokens. They are opaque, since the next key may be one that the requester may not read.
//!
//! A token is an authentication code of the pattern and the position, followed by the position,
//! encrypted with a key stream that depends on the code (as in SIV modes, with SipHash-2-4 as the
//! only primitive). Equal positions give equal tokens, so tokens need no state and may be used
//! again. A store with the same secret accepts them after a restart.

use alloc::vec::Vec;
use core::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

const CODE_LEN: usize = 16;

/// Encrypts and decrypts SCAN tokens.
pub(super) struct ScanTokens {
    code: SipHasher24,
    stream: SipHasher24,
}

impl ScanTokens {
    pub(super) fn new(secret: [u8; 16]) -> Self {
        let keyed = SipHasher24::new_with_key(&secret);
        let derive = |purpose: &[u8]| SipHasher24::new_with_key(&keyed.hash(purpose).as_bytes());
        Self { code: derive(b"code"), stream: derive(b"stream") }
    }

    /// The token for a position among the keys of a pattern.
    pub(super) fn encrypt(&self, pattern: &[u8], position: &[&[u8]]) -> Vec<u8> {
        let len = position.iter().map(|part| part.len()).sum::<usize>();
        let mut token = Vec::with_capacity(CODE_LEN + len);
        token.resize(CODE_LEN, 0);
        position.iter().for_each(|part| token.extend_from_slice(part));
        if let Some((code, text)) = token.split_first_chunk_mut::<CODE_LEN>() {
            *code = self.code_of(pattern, text);
            self.cipher(*code, text);
        }
        token
    }

    /// The position that a token of this pattern contains; `None` for a foreign token.
    pub(super) fn decrypt(&self, pattern: &[u8], token: &[u8]) -> Option<Vec<u8>> {
        let (code, text) = token.split_first_chunk::<CODE_LEN>()?;
        let mut position = text.to_vec();
        self.cipher(*code, &mut position);
        (self.code_of(pattern, &position) == *code).then_some(position)
    }

    fn code_of(&self, pattern: &[u8], position: &[u8]) -> [u8; CODE_LEN] {
        let mut code = self.code;
        code.write(&(pattern.len() as u64).to_le_bytes());
        code.write(pattern);
        code.write(position);
        code.finish128().as_bytes()
    }

    fn cipher(&self, code: [u8; CODE_LEN], text: &mut [u8]) {
        for (number, block) in (0_u64..).zip(text.chunks_mut(CODE_LEN)) {
            let mut stream = self.stream;
            stream.write(&code);
            stream.write(&number.to_le_bytes());
            let stream = stream.finish128().as_bytes();
            block.iter_mut().zip(stream).for_each(|(byte, key)| *byte ^= key);
        }
    }
}
