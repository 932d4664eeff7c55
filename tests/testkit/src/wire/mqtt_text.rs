//! MQTT packets in words, so that what different codecs read can be compared and written down.

use std::fmt::{self, Write as _};

use statestore_mqtt::packet::{Ack, Acks, Connect, Notice, Packet, Publish, Subscription, Will};
use statestore_mqtt::property::{Encode, Properties, Property};
use statestore_mqtt::wire::Sink;
use statestore_mqtt::{Qos, Unwritable};

/// Properties that can be listed.
pub trait List {
    /// All of them, in order.
    fn list(&self) -> Vec<Property<'_>>;
}

impl List for Properties<'_> {
    fn list(&self) -> Vec<Property<'_>> {
        self.iter().collect()
    }
}

/// Properties to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed<'a>(pub Vec<Property<'a>>);

impl List for Listed<'_> {
    fn list(&self) -> Vec<Property<'_>> {
        self.0.clone()
    }
}

impl Encode for Listed<'_> {
    fn put<S: Sink>(&self, sink: &mut S) -> Result<(), Unwritable> {
        self.0.as_slice().put(sink)
    }
}

/// A property with its whole value, which `Debug` omits.
#[must_use]
pub fn show_property(property: &Property<'_>) -> String {
    match property {
        Property::CorrelationData(data) => format!("CorrelationData({data:?})"),
        Property::AuthenticationData(data) => format!("AuthenticationData({data:?})"),
        Property::User(name, value) => format!("User({name:?}, {value:?})"),
        other => format!("{other:?}"),
    }
}

/// A whole packet in one line. Properties are in their order.
pub fn show<P: List>(packet: &Packet<'_, P>) -> String {
    show_with(packet, |_| {})
}

/// A packet in one line, with the properties ordered by their identifiers. Equal identifiers stay
/// in order.
pub fn show_sorted<P: List>(packet: &Packet<'_, P>) -> String {
    show_with(packet, |properties| properties.sort_by_key(Property::id))
}

fn show_with<P: List>(packet: &Packet<'_, P>, arrange: fn(&mut Vec<Property<'_>>)) -> String {
    let mut line = Line { text: format!("{:?}", packet.kind()).to_uppercase(), arrange };
    line.packet(packet).expect("a string takes everything");
    line.text
}

struct Line {
    text: String,
    arrange: fn(&mut Vec<Property<'_>>),
}

impl Line {
    fn packet<P: List>(&mut self, packet: &Packet<'_, P>) -> fmt::Result {
        match packet {
            Packet::Connect(connect) => self.connect(connect),
            Packet::ConnAck(connack) => {
                write!(self.text, " {:02x}", connack.reason.0)?;
                self.flag(connack.session_present, "session-present");
                self.properties(&connack.properties)
            }
            Packet::Publish(publish) => self.publish(publish),
            Packet::PubAck(ack)
            | Packet::PubRec(ack)
            | Packet::PubRel(ack)
            | Packet::PubComp(ack) => {
                let Ack { id, reason, properties } = ack;
                write!(self.text, " id={id} {:02x}", reason.0)?;
                self.properties(properties)
            }
            Packet::Subscribe(subscribe) => {
                write!(self.text, " id={}", subscribe.id)?;
                self.properties(&subscribe.properties)?;
                { subscribe.subscriptions }.try_for_each(|one| self.subscription(&one))
            }
            Packet::Unsubscribe(unsubscribe) => {
                write!(self.text, " id={}", unsubscribe.id)?;
                self.properties(&unsubscribe.properties)?;
                { unsubscribe.filters }.try_for_each(|filter| write!(self.text, " [{filter}]"))
            }
            Packet::SubAck(Acks { id, properties, reasons })
            | Packet::UnsubAck(Acks { id, properties, reasons }) => {
                write!(self.text, " id={id}")?;
                self.properties(properties)?;
                write!(self.text, " codes={}", hex::encode(reasons))
            }
            Packet::PingReq | Packet::PingResp => Ok(()),
            Packet::Disconnect(notice) | Packet::Auth(notice) => {
                let Notice { reason, properties } = notice;
                write!(self.text, " {:02x}", reason.0)?;
                self.properties(properties)
            }
        }
    }

    fn connect<P: List>(&mut self, connect: &Connect<'_, P>) -> fmt::Result {
        write!(self.text, " {}", connect.client_id)?;
        self.flag(connect.clean_start, "clean");
        write!(self.text, " keep-alive={}", connect.keep_alive)?;
        self.properties(&connect.properties)?;
        if let Some(Will { qos, retain, properties, topic, payload }) = &connect.will {
            write!(self.text, " will=[{topic} qos={}", *qos as u8)?;
            self.flag(*retain, "retain");
            self.properties(properties)?;
            write!(self.text, " payload={}]", hex::encode(payload))?;
        }
        if let Some(name) = connect.user_name {
            write!(self.text, " user={name}")?;
        }
        if let Some(password) = connect.password {
            write!(self.text, " password={}", hex::encode(password))?;
        }
        Ok(())
    }

    fn publish<P: List>(&mut self, publish: &Publish<'_, P>) -> fmt::Result {
        write!(self.text, " {}", publish.topic)?;
        if let Some(id) = publish.id {
            write!(self.text, " id={id}")?;
        }
        self.qos(publish.qos)?;
        self.flag(publish.dup, "dup");
        self.flag(publish.retain, "retain");
        self.properties(&publish.properties)?;
        match publish.payload {
            [] => Ok(()),
            payload => write!(self.text, " payload={}", hex::encode(payload)),
        }
    }

    fn subscription(&mut self, subscription: &Subscription<'_>) -> fmt::Result {
        let Subscription { filter, options } = subscription;
        write!(self.text, " [{filter}")?;
        self.qos(options.qos)?;
        self.flag(options.no_local, "no-local");
        self.flag(options.retain_as_published, "as-published");
        if options.retain_handling != Default::default() {
            write!(self.text, " {:?}", options.retain_handling)?;
        }
        self.text.write_char(']')
    }

    fn qos(&mut self, qos: Qos) -> fmt::Result {
        write!(self.text, " qos={}", qos as u8)
    }

    fn flag(&mut self, is_set: bool, name: &str) {
        if is_set {
            self.text.push(' ');
            self.text.push_str(name);
        }
    }

    fn properties<P: List>(&mut self, properties: &P) -> fmt::Result {
        let mut list = properties.list();
        (self.arrange)(&mut list);
        list.iter().try_for_each(|property| write!(self.text, " {}", show_property(property)))
    }
}
