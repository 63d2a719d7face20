use std::net::IpAddr;
use std::str::FromStr;

/// Host names and addresses with commas in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames(pub Vec<String>);

impl FromStr for HostNames {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let usable =
            |name: &&str| name.parse::<IpAddr>().is_ok() || (!name.is_empty() && name.bytes().all(plain));
        let names: Vec<_> = text.split(',').map(str::trim).collect();
        if names.iter().all(usable) {
            Ok(Self(names.into_iter().map(str::to_owned).collect()))
        } else {
            Err("must be host names or addresses, with commas in between and without ports")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_without_ports() {
        let read = |text: &str| text.parse::<HostNames>().map(|names| names.0);
        assert_eq!(read("quota.internal"), Ok(vec!["quota.internal".to_owned()]));
        assert_eq!(read("a, 10.0.0.5,::1").map(|names| names.len()), Ok(3));
        for text in ["", "a,", "a b", "http://a", "a:8090", "[::1]", "*", "*.example"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
