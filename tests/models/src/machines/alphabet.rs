//! Alphabets of operations: their letters in an input, and their weights in generated inputs.

use std::marker::PhantomData;

#[cfg(feature = "generators")]
use proptest::prelude::{Just, Strategy, any, prop};
#[cfg(feature = "generators")]
use proptest::strategy::Union;

/// Argument bytes of an operation.
pub type Args = [u8; 5];

/// The operations of one machine.
pub trait Alphabet: Copy + PartialEq + std::fmt::Debug + 'static {
    /// Every operation with its letter and weight.
    const ALL: &'static [(Self, u8, u32)];
}

/// Declares an alphabet: `Operation = letter, weight`.
#[macro_export]
macro_rules! alphabet {
    ($(#[$about:meta])* $vis:vis enum $Op:ident {
        $($(#[$doc:meta])* $Name:ident = $letter:literal, $weight:literal;)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $Op { $($(#[$doc])* $Name,)* }

        impl $crate::machines::Alphabet for $Op {
            const ALL: &'static [(Self, u8, u32)] = &[$((Self::$Name, $letter, $weight),)*];
        }
    };
}

/// Reads the operations of an input, after its head bytes.
pub struct Reader<'a, Op> {
    data: &'a [u8],
    op: PhantomData<Op>,
}

impl<'a, Op> Reader<'a, Op> {
    /// The head bytes, zero if missing, and the operations after them.
    #[must_use]
    pub fn new<const HEAD: usize>(data: &'a [u8]) -> ([u8; HEAD], Self) {
        let (head, data) = data.split_at(HEAD.min(data.len()));
        let mut padded = [0; HEAD];
        padded[..head.len()].copy_from_slice(head);
        (padded, Self { data, op: PhantomData })
    }

    /// Returns the bytes after an operation, unchanged; fewer than `len` at the end of the input.
    pub fn raw(&mut self, len: usize) -> &'a [u8] {
        let (raw, rest) = self.data.split_at(len.min(self.data.len()));
        self.data = rest;
        raw
    }
}

impl<Op: Alphabet> Iterator for Reader<'_, Op> {
    type Item = (Op, Args);

    fn next(&mut self) -> Option<Self::Item> {
        let named = |byte: &u8| Op::ALL.iter().find(|(_, letter, _)| letter == byte);
        let (at, (op, ..)) =
            self.data.iter().enumerate().find_map(|(at, byte)| Some((at, named(byte)?)))?;
        self.data = &self.data[at + 1..];
        let mut args = Args::default();
        let given = self.raw(args.len());
        args[..given.len()].copy_from_slice(given);
        Some((*op, args))
    }
}

/// The operations of an alphabet that `wanted` selects, by weight.
///
/// # Panics
/// If none is selected.
#[cfg(feature = "generators")]
pub fn ops<Op: Alphabet>(wanted: impl Fn(Op) -> bool) -> impl Strategy<Value = Op> {
    let wanted = Op::ALL.iter().filter(|(op, ..)| wanted(*op));
    Union::new_weighted(wanted.map(|(op, _, weight)| (*weight, Just(*op))).collect())
}

/// Inputs with head bytes and fewer than `len` selected operations.
///
/// # Panics
/// If none is selected.
#[cfg(feature = "generators")]
pub fn script<Op: Alphabet>(
    head: usize,
    wanted: impl Fn(Op) -> bool,
    len: usize,
) -> impl Strategy<Value = Vec<u8>> {
    let letter = |op: Op| {
        let named = Op::ALL.iter().find(|(other, ..)| *other == op);
        named.map_or(0, |(_, letter, _)| *letter)
    };
    let head = prop::collection::vec(any::<u8>(), head);
    let ops = prop::collection::vec((ops(wanted).prop_map(letter), any::<Args>()), 0..len);
    (head, ops).prop_map(|(mut bytes, ops)| {
        for (letter, args) in ops {
            bytes.push(letter);
            bytes.extend(args);
        }
        bytes
    })
}
