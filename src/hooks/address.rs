//! Which addresses events may be posted to: only public ones, so that a hook cannot reach services that trust the network
//! of this machine, such as the metadata service of a cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is public: it is not of this host, of a private, shared or link-local network, reserved, for
/// documentation or multicast; also where an IPv6 address contains it.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_protocol = (first, second, third) == (192, 0, 0);
    let is_relay = (first, second, third) == (192, 88, 99);
    let is_benchmark = first == 198 && (18..20).contains(&second);
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast();
    // From 240.0.0.0 on, addresses are reserved.
    !(is_special
        || is_shared
        || is_protocol
        || is_relay
        || is_benchmark
        || first == 0
        || first >= 240)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = contained_v4(address) {
        return is_public_v4(inner);
    }
    let segments = address.segments();
    // Only 2000::/3 is global unicast: this excludes loopback, unique local, link-local and multicast addresses.
    let is_global = segments[0] & 0xe000 == 0x2000;
    let is_documentation = segments[..2] == [0x2001, 0xdb8] || segments[0] & 0xfff0 == 0x3ff0;
    // 2001::/23 has protocols such as Teredo.
    let is_protocol = segments[0] == 0x2001 && segments[1] < 0x200;
    is_global && !is_documentation && !is_protocol
}

/// The IPv4 address that an address stands for: mapped, compatible, translated (NAT64) or 6to4.
fn contained_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let at = |index: usize| {
        let [a, b] = segments[index].to_be_bytes();
        let [c, d] = segments[index + 1].to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0xffff | 0, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(at(6)),
        [0x2002, ..] => Some(at(1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_reached() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:0:1::",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            let parsed: IpAddr = address.parse().expect(address);
            assert!(!is_public(parsed), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.128.0.1",
            "172.32.0.1",
            "203.0.112.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "64:ff9b::808:808",
            "::ffff:8.8.8.8",
        ] {
            let parsed: IpAddr = address.parse().expect(address);
            assert!(is_public(parsed), "{address}");
        }
    }
}
