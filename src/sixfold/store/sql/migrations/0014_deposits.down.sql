DROP TABLE deposit_scan;
DROP TABLE deposit_address;
