//! Topic filters of SUBSCRIBE and UNSUBSCRIBE.

use crate::error::{Malformed, Unwritable};
use crate::qos::Qos;
use crate::topic::Filter;
use crate::wire::{Reader, Sink, put_binary};

/// Retain Handling: when the server sends retained messages for a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetainHandling {
    /// At every SUBSCRIBE.
    #[default]
    Always = 0,
    /// At a SUBSCRIBE that creates the subscription.
    IfNew = 1,
    /// Never.
    Never = 2,
}

/// Options of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// Maximum QoS of delivered messages.
    pub qos: Qos,
    /// No Local: messages of the same client are not delivered.
    pub no_local: bool,
    /// Retain As Published: messages have the retain flag with which they were published.
    pub retain_as_published: bool,
    /// Retain Handling.
    pub retain_handling: RetainHandling,
}

impl SubscriptionOptions {
    fn read(byte: u8) -> Result<Self, Malformed> {
        if byte & 0xc0 != 0 {
            return Err(Malformed::Flags(byte));
        }
        let retain_handling = match byte >> 4 {
            0 => RetainHandling::Always,
            1 => RetainHandling::IfNew,
            2 => RetainHandling::Never,
            _ => return Err(Malformed::Options(byte)),
        };
        Ok(Self {
            // Section 3.8.3.1: a QoS of 3 is a protocol error, not a malformed packet.
            qos: Qos::from_bits(byte, byte).map_err(|_| Malformed::Options(byte))?,
            no_local: byte & 0x04 != 0,
            retain_as_published: byte & 0x08 != 0,
            retain_handling,
        })
    }

    const fn byte(self) -> u8 {
        let no_local = if self.no_local { 0x04 } else { 0 };
        let retain_as_published = if self.retain_as_published { 0x08 } else { 0 };
        self.qos as u8 | no_local | retain_as_published | (self.retain_handling as u8) << 4
    }
}

/// A subscription in a SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription<'a> {
    /// Topic filter, including `$share/NAME/` for a shared subscription.
    pub filter: &'a str,
    /// Options.
    pub options: SubscriptionOptions,
}

impl<'a> Subscription<'a> {
    /// A subscription with this maximum QoS and the defaults of the other options.
    #[must_use]
    pub fn new(filter: &'a str, qos: Qos) -> Self {
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        Self { filter, options }
    }

    fn read(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (text, filter) = read_filter(body)?;
        let options = SubscriptionOptions::read(body.byte()?)?;
        if options.no_local && filter.share.is_some() {
            return Err(Malformed::NoLocal);
        }
        Ok(Self { filter: text, options })
    }
}

fn read_filter<'a>(body: &mut Reader<'a>) -> Result<(&'a str, Filter<'a>), Malformed> {
    let text = body.text()?;
    Filter::parse(text).map(|filter| (text, filter)).ok_or(Malformed::TopicFilter)
}

/// Items of a received packet or of a packet to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Items<'a, T> {
    Wire(Reader<'a>),
    List(&'a [T]),
}

impl<'a, T: Copy> Items<'a, T> {
    /// Validates all items with `read_item`.
    fn read(
        body: &mut Reader<'a>,
        read_item: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Self, Malformed> {
        let all = Reader::new(body.rest());
        let mut rest = all;
        while !rest.is_empty() {
            read_item(&mut rest)?;
        }
        if all.is_empty() { Err(Malformed::Empty) } else { Ok(Self::Wire(all)) }
    }

    #[cfg(feature = "alloc")]
    fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::Wire(rest) => rest.as_bytes(),
            Self::List(_) => &[],
        }
    }

    fn next(&mut self, read_item: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>) -> Option<T> {
        match self {
            // The items were validated, so the only possible error is the end.
            Self::Wire(rest) => read_item(rest).ok(),
            Self::List(list) => {
                let (first, rest) = list.split_first()?;
                *list = rest;
                Some(*first)
            }
        }
    }
}

/// The subscriptions of a SUBSCRIBE, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriptions<'a>(Items<'a, Subscription<'a>>);

impl<'a> Subscriptions<'a> {
    /// A list for a packet to encode. The filters are not checked.
    #[must_use]
    pub const fn new(list: &'a [Subscription<'a>]) -> Self {
        Self(Items::List(list))
    }

    /// The [bytes](Self::as_bytes) of other entries. For the packages of this repository: checks
    /// nothing.
    #[doc(hidden)]
    #[must_use]
    #[cfg(feature = "alloc")]
    pub const fn from_validated(bytes: &'a [u8]) -> Self {
        Self(Items::Wire(Reader::new(bytes)))
    }

    /// Received bytes of the remaining entries; empty for a list to encode.
    #[must_use]
    #[cfg(feature = "alloc")]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0.as_bytes()
    }

    pub(super) fn read(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Items::read(body, Subscription::read).map(Self)
    }

    pub(super) fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        { *self }.try_for_each(|Subscription { filter, options }| {
            put_binary(sink, filter.as_bytes())?;
            sink.put(&[options.byte()]);
            Ok(())
        })
    }
}

impl<'a> Iterator for Subscriptions<'a> {
    type Item = Subscription<'a>;

    fn next(&mut self) -> Option<Subscription<'a>> {
        self.0.next(Subscription::read)
    }
}

/// The topic filters of an UNSUBSCRIBE, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filters<'a>(Items<'a, &'a str>);

impl<'a> Filters<'a> {
    /// A list for a packet to encode. The filters are not checked.
    #[must_use]
    pub const fn new(list: &'a [&'a str]) -> Self {
        Self(Items::List(list))
    }

    /// The [bytes](Self::as_bytes) of other entries. For the packages of this repository: checks
    /// nothing.
    #[doc(hidden)]
    #[must_use]
    #[cfg(feature = "alloc")]
    pub const fn from_validated(bytes: &'a [u8]) -> Self {
        Self(Items::Wire(Reader::new(bytes)))
    }

    /// Received bytes of the remaining entries; empty for a list to encode.
    #[must_use]
    #[cfg(feature = "alloc")]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0.as_bytes()
    }

    pub(super) fn read(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Items::read(body, |body| read_filter(body).map(|(text, _)| text)).map(Self)
    }

    pub(super) fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        { *self }.try_for_each(|filter| put_binary(sink, filter.as_bytes()))
    }
}

impl<'a> Iterator for Filters<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0.next(|body| read_filter(body).map(|(text, _)| text))
    }
}
