//! What SUBSCRIBE and UNSUBSCRIBE are about.

use crate::error::{Malformed, Unwritable};
use crate::qos::Qos;
use crate::topic::Filter;
use crate::wire::{Reader, Sink, put_binary};

/// When a subscription brings the messages that are retained already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetainHandling {
    /// At every SUBSCRIBE.
    #[default]
    Always = 0,
    /// When there was no such subscription.
    IfNew = 1,
    /// Never.
    Never = 2,
}

/// How to subscribe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// The greatest QoS that messages come at.
    pub qos: Qos,
    /// Whether messages of the same client are left out.
    pub no_local: bool,
    /// Whether messages keep the retain flag that they were published with.
    pub retain_as_published: bool,
    /// When the retained messages come.
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
            // Not malformed, but against the protocol: section 3.8.3.1 tells the two apart.
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

/// One of a SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription<'a> {
    /// Topic filter, with its share if it has one.
    pub filter: &'a str,
    /// How.
    pub options: SubscriptionOptions,
}

impl<'a> Subscription<'a> {
    fn read(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (text, filter) = filter(body)?;
        let options = SubscriptionOptions::read(body.byte()?)?;
        if options.no_local && filter.share.is_some() {
            return Err(Malformed::NoLocal);
        }
        Ok(Self { filter: text, options })
    }
}

fn filter<'a>(body: &mut Reader<'a>) -> Result<(&'a str, Filter<'a>), Malformed> {
    let text = body.text()?;
    Filter::parse(text).map(|filter| (text, filter)).ok_or(Malformed::TopicFilter)
}

/// Either what was received, or what is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Items<'a, T> {
    Wire(Reader<'a>),
    List(&'a [T]),
}

impl<'a, T: Copy> Items<'a, T> {
    /// Checks all there is.
    fn read(
        body: &mut Reader<'a>,
        one: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Self, Malformed> {
        let all = Reader::new(body.rest());
        let mut rest = all;
        while !rest.is_empty() {
            one(&mut rest)?;
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

    fn next(&mut self, one: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>) -> Option<T> {
        match self {
            // They were read once already, so the only error is that nothing is left.
            Self::Wire(rest) => one(rest).ok(),
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
    /// To be sent. What it says is not checked.
    #[must_use]
    pub const fn new(list: &'a [Subscription<'a>]) -> Self {
        Self(Items::List(list))
    }

    /// What was received and checked before.
    #[cfg(feature = "alloc")]
    pub(crate) const fn trusted(bytes: &'a [u8]) -> Self {
        Self(Items::Wire(Reader::new(bytes)))
    }

    /// What was received and is left.
    #[cfg(feature = "alloc")]
    pub(crate) fn as_bytes(&self) -> &'a [u8] {
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
    /// To be sent. What it says is not checked.
    #[must_use]
    pub const fn new(list: &'a [&'a str]) -> Self {
        Self(Items::List(list))
    }

    /// What was received and checked before.
    #[cfg(feature = "alloc")]
    pub(crate) const fn trusted(bytes: &'a [u8]) -> Self {
        Self(Items::Wire(Reader::new(bytes)))
    }

    /// What was received and is left.
    #[cfg(feature = "alloc")]
    pub(crate) fn as_bytes(&self) -> &'a [u8] {
        self.0.as_bytes()
    }

    pub(super) fn read(body: &mut Reader<'a>) -> Result<Self, Malformed> {
        Items::read(body, |body| filter(body).map(|(text, _)| text)).map(Self)
    }

    pub(super) fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        { *self }.try_for_each(|filter| put_binary(sink, filter.as_bytes()))
    }
}

impl<'a> Iterator for Filters<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.0.next(|body| filter(body).map(|(text, _)| text))
    }
}
