//! Reads the source as the compiler does: from `main.rs` and each `lib.rs` along the declarations of modules, without
//! those of tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens as _;
use regex::Regex;
use syn::visit::{self, Visit};
use syn::{Attribute, FnArg, Item, ItemMod, Meta, Pat, Signature, Type, Visibility};

use super::root;

/// A path of names, such as `store::queue::claim::write`, which begins with the crate but for the program's.
pub(super) type Names = Vec<String>;

/// One file of the source.
pub(super) struct Source {
    /// Below `src/`.
    pub(super) path: String,
    /// Without comments, and without tests at its end.
    pub(super) code: String,
    pub(super) module: Names,
    /// What it names, of this crate or another.
    pub(super) names: BTreeSet<Names>,
    /// What its `pub use` shows of other modules.
    pub(super) reexports: BTreeSet<String>,
    /// Its functions with an argument that is a tuple.
    pub(super) with_tuples: Vec<String>,
}

impl Source {
    /// The module at the top that it belongs to.
    pub(super) fn part(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.trim_end_matches(".rs")
    }

    pub(super) fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path.starts_with(place))
    }

    /// A file with this text, and the names of the modules in other files that it declares.
    pub(super) fn parse(path: &str, module: &[String], text: &str) -> (Self, Vec<String>) {
        static COMMENT: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"(?m)^\s*//.*$|\s// .*$").expect("a pattern"));
        let tests = text.find("#[cfg(test)]\nmod tests {");
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut source = Self {
            path: path.to_owned(),
            code: COMMENT.replace_all(&text[..tests.unwrap_or(text.len())], "").into_owned(),
            names: BTreeSet::new(),
            reexports: BTreeSet::new(),
            with_tuples: Vec::new(),
            module: module.to_vec(),
        };
        let mut declared = Vec::new();
        source.add(&file.items, module, &mut declared);
        (source, declared)
    }

    fn add(&mut self, items: &[Item], module: &[String], declared: &mut Vec<String>) {
        for item in items.iter().filter(|item| !is_of_tests(item)) {
            if let Item::Mod(ItemMod { ident, content, .. }) = item {
                match content {
                    Some((_, items)) => {
                        let inner = [module, &[ident.to_string()]].concat();
                        self.add(items, &inner, declared);
                    }
                    None => declared.push(ident.to_string()),
                }
                continue;
            }
            self.visit_item(item);
            let named = paths(item.to_token_stream());
            if let Item::Use(import) = item
                && !matches!(import.vis, Visibility::Inherited)
                && module == self.module
            {
                let shown = paths(import.tree.to_token_stream());
                self.reexports.extend(shown.into_iter().filter_map(|mut path| path.pop()));
            }
            self.names.extend(named.iter().filter_map(|path| from_root(path, module)));
        }
    }
}

impl<'a> Visit<'a> for Source {
    fn visit_signature(&mut self, signature: &'a Signature) {
        if signature.inputs.iter().any(is_tuple) {
            self.with_tuples.push(format!("{}: {}", self.path, signature.ident));
        }
        visit::visit_signature(self, signature);
    }
}

fn is_tuple(argument: &FnArg) -> bool {
    let FnArg::Typed(argument) = argument else {
        return false;
    };
    let mut kind = &*argument.ty;
    while let Type::Reference(reference) = kind {
        kind = &*reference.elem;
    }
    let is_tuple = matches!(kind, Type::Tuple(tuple) if !tuple.elems.is_empty());
    is_tuple || matches!(*argument.pat, Pat::Tuple(_))
}

/// All files of the source.
pub(super) fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let mut all = Vec::new();
        for file in ["main.rs", "lib.rs"] {
            read(file, &[], &mut all);
        }
        for manifest in super::manifests() {
            let folder = manifest.parent().and_then(Path::file_name).expect("a folder");
            let name = folder.to_string_lossy().into_owned();
            if root("src").join(&name).exists() {
                read(&format!("{name}/lib.rs"), &[name], &mut all);
            }
        }
        all
    });
    &SOURCES
}

fn read(path: &str, module: &[String], all: &mut Vec<Source>) {
    let text = fs::read_to_string(root("src").join(path)).expect("a file of the source");
    let (source, declared) = Source::parse(path, module, &text);
    all.push(source);
    let (folder, file) = path.rsplit_once('/').map_or(("", path), |(folder, file)| (folder, file));
    let inner = match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        file => Path::new(folder).join(file.trim_end_matches(".rs")).display().to_string(),
    };
    for name in declared {
        let child = [module, std::slice::from_ref(&name)].concat();
        let files = [format!("{inner}/{name}.rs"), format!("{inner}/{name}/mod.rs")];
        let files = files.map(|file| file.trim_start_matches('/').to_owned());
        let file = files.iter().find(|file| root("src").join(file).exists());
        read(file.expect("the file of a module"), &child, all);
    }
}

/// Whether an item is only in tests, of this crate or of others.
fn is_of_tests(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        _ => &[],
    };
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => {
            let condition = list.tokens.to_string();
            list.path.is_ident("cfg") && (condition == "test" || condition.contains("\"testing\""))
        }
        _ => false,
    })
}

/// Whether a module is in a crate below that of the program.
fn is_member(module: &[String]) -> bool {
    module.first().is_some_and(|name| root("src").join(name).join("Cargo.toml").exists())
}

/// A path that is written in `module`, from the root of its crate or of another; `None` if it leads above that.
fn from_root(path: &[String], module: &[String]) -> Option<Names> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (above, below) = match path.first()?.as_str() {
        // The crates below that of the program are the folders at the top.
        "crate" if is_member(module) => (&module[..1], &path[1..]),
        "crate" | "smsq" => (&[][..], &path[1..]),
        "self" => (module, &path[1..]),
        name if name.starts_with("smsq_") => {
            let name = name.trim_start_matches("smsq_").to_owned();
            return Some([&[name], &path[1..]].concat());
        }
        // What is not a module inside is not found in any.
        _ => (&module[..module.len().checked_sub(supers)?], &path[supers..]),
    };
    Some([above, below].concat())
}

/// The paths of more than one name in this code, with one for each name of a group of imports.
fn paths(tokens: TokenStream) -> Vec<Names> {
    let mut found = Vec::new();
    read_paths(tokens, &[], &mut found);
    found.retain(|path| path.len() > 1);
    found
}

/// `before`: the path in front of the group that these tokens are.
fn read_paths(tokens: TokenStream, before: &[String], found: &mut Vec<Names>) {
    let mut path = before.to_vec();
    let mut is_open = true;
    let mut tokens = tokens.into_iter();
    let end = |path: &mut Names, found: &mut Vec<Names>| {
        found.push(std::mem::replace(path, before.to_vec()));
        true
    };
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(sign) if sign.as_char() == ':' && sign.spacing() == Spacing::Joint => {
                tokens.next();
                is_open = true;
            }
            // What follows is another name for it.
            TokenTree::Ident(name) if name == "as" => {
                tokens.next();
            }
            TokenTree::Ident(name) => {
                if !is_open {
                    end(&mut path, found);
                }
                path.push(name.to_string());
                is_open = false;
            }
            TokenTree::Group(group) => {
                if !is_open || group.delimiter() != Delimiter::Brace {
                    end(&mut path, found);
                    path.clear();
                }
                read_paths(group.stream(), &path, found);
                path = before.to_vec();
                is_open = true;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => is_open = end(&mut path, found),
        }
    }
    end(&mut path, found);
}
