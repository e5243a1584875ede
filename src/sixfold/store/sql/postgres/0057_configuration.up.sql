-- Adds the entries of the configuration that operators set on pages or over HTTP.
-- `section` is a table of sixfold.toml and `value` JSON; `providers` has sealed keys.
CREATE TABLE configuration_entry (
    section TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    value   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (section, name)
);
