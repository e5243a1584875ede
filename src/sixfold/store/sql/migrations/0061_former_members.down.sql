DROP TABLE former_member;
